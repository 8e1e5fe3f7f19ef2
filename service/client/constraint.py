"""What the text must fit, as a caller writes it: the protobuf form, and the parser of the text that comes back.

Invariant: at most one kind of constraint is encoded, and the parser is the one that belongs to it.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, TypedDict

from google.protobuf.descriptor import EnumDescriptor

from service.client.checks import checked, only_one, refuse_single_text
from service.client.errors import InvalidArgumentError
from service.client.results import CompiledConstraint
from service.client.schema_text import Parser, Schema, schema_text_and_parser
from service.client.structure import (
    Reasoning,
    StructuralTags,
    ToolCalls,
    encode_reasoning,
    encode_structural_tags,
    encode_tool_calls,
)
from service.v1 import common_pb2 as pb


class Whitespace(enum.StrEnum):
    """White space between JSON tokens."""

    COMPACT = "compact"
    """None; the default."""
    SPACED = "spaced"
    """One space after every comma and colon."""
    FLEXIBLE = "flexible"
    """The model chooses, within bounds."""


class PropertyOrder(enum.StrEnum):
    """In which order the keys of an object come."""

    SCHEMA = "schema"
    """Those that `properties` declares in their order, then the others; the default."""
    ANY = "any"
    """The model chooses; each key comes once."""


class Formats(enum.StrEnum):
    """What `format` means in a schema."""

    ASSERT = "assert"
    """Texts are of the format; the default."""
    ANNOTATE = "annotate"
    """A note for the reader: none is enforced, each is in `unenforced`."""


class RegexDialect(enum.StrEnum):
    """How a regular expression is read."""

    PYTHON = "python"
    """As Python's re does; the default."""
    ECMA = "ecma"
    """As ECMA-262 does with the flag u, like the patterns of schemas."""


class Notation(enum.StrEnum):
    """How a grammar is written."""

    GBNF = "gbnf"
    """As for llama.cpp; the default."""
    LARK = "lark"
    """As for the lark package."""


class ConstraintOptions(TypedDict, total=False):
    """Constraints other than a schema, of which there is at most one, and how a constraint is enforced."""

    regex: str | None
    """Text that matches this regular expression in full."""
    choices: Sequence[str] | None
    """One of these texts."""
    json_object: bool
    """Any JSON object."""
    grammar: str | None
    """Text that this grammar derives, or a ready one's: ``@json``, ``@arithmetic``, ``@sql``, ``@calls``."""
    notation: Notation | Literal["gbnf", "lark"] | None
    """How the grammar is written; default GBNF, and a ready one has its own."""
    start: str | None
    """The grammar's rule that texts start from; default the notation's own, ``root`` or ``start``."""
    tool_calls: ToolCalls | None
    """Calls of tools, and free text."""
    structural_tags: StructuralTags | None
    """Free text and constrained parts between markers."""
    reasoning: Reasoning | None
    """Free text before the text of the constraint, or before free text where there is none."""
    whitespace: Whitespace | Literal["compact", "spaced", "flexible"] | None
    """White space between JSON tokens; default compact."""
    property_order: PropertyOrder | Literal["schema", "any"] | None
    """Order of the keys of a schema's objects; default that of the schema."""
    formats: Formats | Literal["assert", "annotate"] | None
    """Whether texts must be of a schema's formats; default that they must."""
    integral_floats: bool
    """Integers of a schema may also be spelled 1.0."""
    regex_dialect: RegexDialect | Literal["python", "ecma"] | None
    """How the regular expression is read; default as Python reads it."""
    best_effort: bool
    """Report known keywords that cannot be enforced in `unenforced`, where unknown ones always are, instead of
    UnsupportedError."""


_ENUMS: Mapping[str, tuple[type[enum.StrEnum], EnumDescriptor]] = MappingProxyType(
    {
        "whitespace": (Whitespace, pb.WhitespacePolicy.DESCRIPTOR),
        "property_order": (PropertyOrder, pb.PropertyOrder.DESCRIPTOR),
        "formats": (Formats, pb.FormatPolicy.DESCRIPTOR),
        "regex_dialect": (RegexDialect, pb.RegexDialect.DESCRIPTOR),
    }
)


def encode_constraint(
    *,
    schema: Schema[Any] | None = None,
    compiled: CompiledConstraint[Any] | None = None,
    regex: str | None = None,
    choices: Sequence[str] | None = None,
    json_object: bool = False,
    grammar: str | None = None,
    notation: Notation | str | None = None,
    start: str | None = None,
    tool_calls: ToolCalls | None = None,
    structural_tags: StructuralTags | None = None,
    reasoning: Reasoning | None = None,
    whitespace: Whitespace | str | None = None,
    property_order: PropertyOrder | str | None = None,
    formats: Formats | str | None = None,
    integral_floats: bool = False,
    regex_dialect: RegexDialect | str | None = None,
    best_effort: bool = False,
) -> tuple[pb.Constraint | None, Parser]:
    """The protobuf form (None without a constraint) and the parser of complete texts.

    Raises InvalidArgumentError where two constraints are given, or one that cannot be written down.
    """
    kinds: dict[str, Any] = {
        "schema": schema,
        "constraint": compiled,
        "regex": regex,
        "choices": choices,
        "json_object": json_object,
        "grammar": grammar,
        "tool_calls": tool_calls,
        "structural_tags": structural_tags,
    }
    kind = only_one(kinds, field="constraint")
    if grammar is None and not (notation is None and start is None):
        raise InvalidArgumentError("constraint.grammar: notation and start need a grammar", "constraint.grammar")
    options: dict[str, str | bool | None] = {
        "whitespace": whitespace,
        "property_order": property_order,
        "formats": formats,
        "integral_floats": integral_floats or None,
        "regex_dialect": regex_dialect,
        "best_effort": best_effort or None,
    }
    given = {name: value for name, value in options.items() if value is not None}
    if kind is None and given:
        raise InvalidArgumentError(f"constraint: {' and '.join(given)} need a constraint", "constraint")
    if kind is None and reasoning is None:
        return None, str
    message = pb.Constraint()
    for name, value in given.items():
        with checked(f"constraint.{name}"):
            setattr(message, name, _on_wire(name, value))
    if reasoning is not None:
        message.reasoning.CopyFrom(encode_reasoning(reasoning))
    if kind == "grammar":
        message.grammar.CopyFrom(_grammar(kinds[kind], notation, start))
        return message, str
    return message, str if kind is None else _set_kind(message, kind, kinds[kind])


def _set_kind(message: pb.Constraint, kind: str, value: Any) -> Parser:
    """Write down a constraint of any kind but grammar; the parser of its texts."""
    parser: Parser = str
    with checked("constraint.json_schema" if kind == "schema" else f"constraint.{kind}"):
        match kind:
            case "schema":
                message.json_schema, parser = schema_text_and_parser(value, "constraint.json_schema")
            case "constraint":
                message.compiled, parser = value.handle, value.parser
            case "choices":
                refuse_single_text(value, "constraint.choices")
                message.choices.CopyFrom(pb.Choices(values=value))
            case "regex":
                message.regex = value
            case "tool_calls":
                calls, parser = encode_tool_calls(value)
                message.tool_calls.CopyFrom(calls)
            case "structural_tags":
                tags, parser = encode_structural_tags(value)
                message.structural_tags.CopyFrom(tags)
            case _:
                parser = json.loads
                message.json_object.SetInParent()
    return parser


def _on_wire(option: str, value: Any) -> Any:
    """An option's value as the message holds it. Raises ValueError where the option has no such value."""
    known, wire = _ENUMS.get(option, (None, None))
    if known is None or wire is None:
        return value
    prefix = wire.values_by_number[0].name.removesuffix("UNSPECIFIED")
    return wire.values_by_name[prefix + known(value).name].number


def _grammar(text: str, notation: Notation | str | None, start: str | None) -> pb.Grammar:
    with checked("constraint.grammar"):
        message = pb.Grammar(text=text)
    if notation is not None:
        with checked("constraint.grammar.notation"):
            message.notation = pb.GrammarNotation.Value(f"GRAMMAR_NOTATION_{Notation(notation).name}")
    if start is not None:
        with checked("constraint.grammar.start"):
            message.start = start
    return message
