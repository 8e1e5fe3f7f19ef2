"""Chat messages to the prompt text that the model was trained on, by the model's own template.

Templates are Jinja as `transformers` renders them (https://huggingface.co/docs/transformers/chat_templating), in a
sandbox. Invariant: a template comes with the model, never with a request.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
import jinja2.ext
from jinja2.nodes import Node, Scope
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from decoding.errors import InvalidRequestError, ModelLoadError


class ChatTemplate:
    """One model's template, compiled once."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        """``special_tokens`` are variables of the template, e.g. ``bos_token``. Raises ModelLoadError for bad Jinja."""
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, jinja2.ext.loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = _strftime_now
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise ModelLoadError(f"the model's chat template is broken: {error}; fetch the model again") from error
        # Templates ask whether tools and documents are none, which an undefined variable is not.
        self._variables = {"tools": None, "documents": None, **special_tokens}

    def render(self, messages: Sequence[Mapping[str, str]], tools: Sequence[Mapping[str, object]] | None = None) -> str:
        """The prompt up to where the assistant's answer begins. Each message has ``role`` and ``content``.

        ``tools`` are shown where the template shows tools; others leave them out.

        Raises InvalidRequestError where the template refuses the messages, e.g. for their order.
        """
        try:
            variables = self._variables if tools is None else {**self._variables, "tools": tools}
            return self._template.render(messages=messages, add_generation_prompt=True, **variables)
        except jinja2.TemplateError as error:
            raise InvalidRequestError("chat.messages", f"the model's chat template refuses them: {error}") from error


class _GenerationBlock(jinja2.ext.Extension):
    """``{% generation %}`` marks the assistant's text for training; what is inside is rendered as it is."""

    tags = {"generation"}  # noqa: RUF012 - declared so by jinja2

    def parse(self, parser: Parser) -> Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return Scope(body, lineno=line)


def _to_json(value: object, *, ensure_ascii: bool = False, **options: Any) -> str:
    """As `json.dumps`; Jinja's own filter escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return dt.datetime.now().astimezone().strftime(pattern)
