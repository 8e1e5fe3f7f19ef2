"""A text of several parts, taken apart: reasoning, free text, parts between markers, tool calls.

Invariant: the server takes texts apart; here its pieces are only given their types.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from service.v1 import common_pb2 as pb


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPart:
    """Free text (`begin` is None), or what stands between a tag's markers; `cut` where its end did not come."""

    text: str
    begin: str | None
    cut: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One whole call: the tool's name and its arguments, a JSON object as text."""

    name: str
    arguments: str
    parser: Callable[[str], Any] = field(repr=False, compare=False)

    @property
    def parsed(self) -> Any:
        """The arguments: an instance of the type that the tool's parameters were given by, else the JSON object."""
        return self.parser(self.arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextParts:
    """A text taken apart.

    Attributes:
        reasoning: without its markers, as far as it came; None where none was asked for.
        content: what comes after it.
        parts: the content in free text and parts, where the constraint has tags or tools.
        tool_calls: the calls that are whole.
    """

    reasoning: str | None
    content: str
    parts: tuple[TextPart, ...]
    tool_calls: tuple[ToolCall, ...]


class ToolParsers:
    """Stands where a parser of texts does: the value of such a text is its calls, each with its tool's parser."""

    def __init__(self, parsers: Mapping[str, Callable[[str], Any]]) -> None:
        self.parsers = parsers

    def __call__(self, text: str) -> NoReturn:
        """Never called: `parser_of` gives the calls."""
        raise AssertionError(text)


class AllParts:
    """Stands where a parser of texts does: the value of such a text is its parts."""

    def __call__(self, text: str) -> NoReturn:
        """Never called: `parser_of` gives the parts."""
        raise AssertionError(text)


def text_parts(message: pb.TextParts, parser: Callable[[str], Any]) -> TextParts:
    """Decode; ``parser`` is that of the request."""
    parsers = parser.parsers if isinstance(parser, ToolParsers) else {}
    return TextParts(
        reasoning=message.reasoning if message.HasField("reasoning") else None,
        content=message.content,
        parts=tuple(
            TextPart(text=part.text, begin=part.begin if part.HasField("begin") else None, cut=part.cut)
            for part in message.parts
        ),
        tool_calls=tuple(
            ToolCall(name=call.name, arguments=call.arguments, parser=parsers.get(call.name, json.loads))
            for call in message.tool_calls
        ),
    )


def parser_of(parser: Callable[[str], Any], parts: TextParts | None) -> Callable[[str], Any]:
    """What turns the content of one sample into its value."""
    if isinstance(parser, ToolParsers):
        return _Known(() if parts is None else parts.tool_calls)
    if isinstance(parser, AllParts):
        return _Known(() if parts is None else parts.parts)
    return parser


@dataclass(frozen=True, slots=True)
class _Known:
    """Gives a value that the server has taken out of the text."""

    value: tuple[TextPart, ...] | tuple[ToolCall, ...]

    def __call__(self, text: str) -> tuple[TextPart, ...] | tuple[ToolCall, ...]:  # noqa: ARG002 - a parser's signature
        return self.value
