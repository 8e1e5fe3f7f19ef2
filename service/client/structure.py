"""Texts of several parts, as a caller asks for them: tool calls, structural tags, reasoning.

Invariant: what each dataclass says goes over the wire as it stands; whether it can be honoured is the server's to say.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from service.client.checks import checked, only_one, refuse_single_text
from service.client.errors import InvalidArgumentError
from service.client.parts import AllParts, ToolParsers
from service.client.schema_text import Parser, Schema, schema_text_and_parser
from service.v1 import common_pb2 as pb


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool.

    Attributes:
        name: letters, digits and ``_ - . : /``.
        parameters: schema of its arguments, which are an object; None for a tool without arguments.
        description: for the model, in a chat.
    """

    name: str
    parameters: Schema[Any] | None = None
    description: str = ""


class ToolChoice(enum.StrEnum):
    """Whether tools are called."""

    AUTO = "auto"
    """Free text, calls, or text and then calls; the default."""
    REQUIRED = "required"
    """At least one call, and nothing but calls."""
    NONE = "none"
    """Free text that begins no call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallFormat:
    """How a call is written: `begin` with ``{name}`` where the tool's name stands, the arguments, `end`.

    `separator` stands between calls. Free text that holds `trigger` goes on as a call; empty stands for what comes
    before ``{name}``.
    """

    begin: str
    end: str = ""
    separator: str = ""
    trigger: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCalls:
    """Calls of tools, and free text; `Sample.tool_calls` are those that came.

    Attributes:
        tools: at least one, with different names.
        choice: whether they are called; not beside `name`.
        name: the only tool that may be called, and must be.
        max_calls: most calls; default 16, and 1 beside `name`.
        format: default that of Hermes and Qwen.
        max_text_tokens: after so many tokens of free text it must end.
    """

    tools: Sequence[Tool]
    choice: ToolChoice | Literal["auto", "required", "none"] | None = None
    name: str = ""
    max_calls: int | None = None
    format: ToolCallFormat | None = None
    max_text_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tag:
    """One kind of constrained part: between `begin` and `end` one of schema, json_object, regex and choices."""

    begin: str
    end: str = ""
    schema: Schema[Any] | None = None
    json_object: bool = False
    regex: str | None = None
    choices: Sequence[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StructuralTags:
    """Free text and constrained parts in turn; `Sample.parts` are the text taken apart.

    Attributes:
        tags: the kinds of parts, at least one.
        triggers: after one of them in free text, a part must go on; default the tags' begins.
        min_parts, max_parts: how many parts; default any number.
        no_text_before, no_text_between, no_text_after: where free text may not stand.
        separator: between parts, where free text may not stand.
        max_text_tokens: after so many tokens of one run of free text it must end.
    """

    tags: Sequence[Tag]
    triggers: Sequence[str] = ()
    min_parts: int = 0
    max_parts: int | None = None
    no_text_before: bool = False
    no_text_between: bool = False
    no_text_after: bool = False
    separator: str = ""
    max_text_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasoning:
    """Free text before the constrained one; `Sample.reasoning` is what came of it.

    Attributes:
        end: ends it, with the white space that the model writes after it.
        begin: opens it; empty where the prompt has done so.
        max_tokens: after so many tokens only the end may come.
    """

    end: str = "</think>"
    begin: str = ""
    max_tokens: int | None = None


def _choice(asked: object, field: str) -> pb.ToolChoice.ValueType:
    names = [choice.value for choice in ToolChoice]
    if asked not in names:
        raise InvalidArgumentError(f"{field}: {asked!r} is no choice; use {', '.join(names)}, or name", field)
    return pb.ToolChoice.Value(f"TOOL_CHOICE_{str(asked).upper()}")


def encode_tool_calls(asked: ToolCalls) -> tuple[pb.ToolCalls, Parser]:
    """The protobuf form, and the parser of its arguments. Raises InvalidArgumentError."""
    field = "constraint.tool_calls"
    with checked(field):
        message = pb.ToolCalls(name=asked.name, max_calls=asked.max_calls, max_text_tokens=asked.max_text_tokens)
        if asked.choice is not None:
            message.choice = _choice(asked.choice, f"{field}.choice")
        if (form := asked.format) is not None:
            message.format.CopyFrom(
                pb.ToolCallFormat(begin=form.begin, end=form.end, separator=form.separator, trigger=form.trigger)
            )
    parsers: dict[str, Parser] = {}
    for index, tool in enumerate(asked.tools):
        path = f"{field}.tools[{index}]"
        with checked(path):
            added = message.tools.add(name=tool.name, description=tool.description)
        if tool.parameters is not None:
            with checked(f"{path}.parameters"):
                added.parameters, parsers[tool.name] = schema_text_and_parser(tool.parameters, f"{path}.parameters")
    return message, ToolParsers(parsers)


def encode_structural_tags(asked: StructuralTags) -> tuple[pb.StructuralTags, Parser]:
    """The protobuf form. Raises InvalidArgumentError."""
    field = "constraint.structural_tags"
    refuse_single_text(asked.triggers, f"{field}.triggers")
    with checked(field):
        message = pb.StructuralTags(
            triggers=asked.triggers,
            min_parts=asked.min_parts,
            max_parts=asked.max_parts,
            no_text_before=asked.no_text_before,
            no_text_between=asked.no_text_between,
            no_text_after=asked.no_text_after,
            separator=asked.separator,
            max_text_tokens=asked.max_text_tokens,
        )
    for index, tag in enumerate(asked.tags):
        message.tags.append(_tag(tag, f"{field}.tags[{index}]"))
    return message, AllParts()


def encode_reasoning(asked: Reasoning) -> pb.Reasoning:
    """The protobuf form. Raises InvalidArgumentError."""
    with checked("constraint.reasoning"):
        return pb.Reasoning(begin=asked.begin, end=asked.end, max_tokens=asked.max_tokens)


def _tag(asked: Tag, path: str) -> pb.StructuralTag:
    kinds = {"schema": asked.schema, "json_object": asked.json_object, "regex": asked.regex, "choices": asked.choices}
    if only_one(kinds, field=path) is None:
        raise InvalidArgumentError(f"{path}: has no content; give one of {', '.join(kinds)}", path)
    with checked(path):
        message = pb.StructuralTag(begin=asked.begin, end=asked.end)
        if asked.schema is not None:
            message.json_schema, _ = schema_text_and_parser(asked.schema, f"{path}.json_schema")
        elif asked.regex is not None:
            message.regex = asked.regex
        elif asked.choices is not None:
            refuse_single_text(asked.choices, f"{path}.choices")
            message.choices.values.extend(asked.choices)
        else:
            message.json_object.SetInParent()
    return message
