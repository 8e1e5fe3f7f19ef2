"""What a caller asks a text to fit, before anything is compiled.

Invariant: a `ConstraintSpec` that exists is well formed on its face: its text is not empty and has a UTF-8 form, its
choices are distinct. Whether it can be compiled, the compiler says.
"""

from __future__ import annotations

import enum
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from decoding.errors import ConstraintError

if TYPE_CHECKING:  # these hold constraints themselves
    from grammars.structural.spec import Reasoning, StructuralTags
    from grammars.structural.tools import ToolCalls

# Possessive, and with an optional closing quote: one pass, whatever the text.
_STRING_OR_SPACE = re.compile(r'("[^"\\]*+(?:\\.[^"\\]*+)*+"?)|[ \t\r\n]++', re.DOTALL)


class ConstraintKind(enum.Enum):
    """What kind of text is allowed. The values are the fields of the protobuf message Constraint."""

    JSON_SCHEMA = "json_schema"
    """JSON text valid under a JSON Schema."""
    JSON_OBJECT = "json_object"
    """Any JSON object."""
    REGEX = "regex"
    """Text that matches a regular expression in full."""
    CHOICES = "choices"
    """One of the given texts."""
    GRAMMAR = "grammar"
    """Text that a context-free grammar derives."""
    STRUCTURAL_TAGS = "structural_tags"
    """Free text and constrained parts between markers."""
    TOOL_CALLS = "tool_calls"
    """Calls of tools, and free text."""


class Notation(enum.Enum):
    """How a grammar is written."""

    GBNF = "gbnf"
    """As for llama.cpp: ``root ::= "yes" | "no"``; starts from `root`."""
    LARK = "lark"
    """As for the lark package: ``start: "yes" | "no"``; starts from `start`."""


class Whitespace(enum.Enum):
    """White space between JSON tokens."""

    COMPACT = "compact"
    """None."""
    SPACED = "spaced"
    """One space after every comma and colon."""
    FLEXIBLE = "flexible"
    """The model chooses, within bounds that rule out endless white space."""


class PropertyOrder(enum.Enum):
    """In which order the keys of an object come."""

    SCHEMA = "schema"
    """Those that `properties` declares in their order, then the others."""
    ANY = "any"
    """In any order, each key once."""


class Formats(enum.Enum):
    """What `format` means in a schema."""

    ASSERT = "assert"
    """Texts are of the format."""
    ANNOTATE = "annotate"
    """A note for the reader: nothing is enforced, and each is reported."""


class RegexDialect(enum.Enum):
    r"""How a regular expression is read; they differ on ``\d``, ``\w``, ``$`` and more."""

    PYTHON = "python"
    """As Python's re does."""
    ECMA = "ecma"
    """As ECMA-262 does with the flag u, like the patterns of schemas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnenforcedKeyword:
    """A keyword of a schema that the compiled grammar does not enforce; ``pointer`` is its JSON pointer.

    ``field`` is the path of the protobuf field that holds the schema; empty where the constraint is the schema itself.
    """

    pointer: str
    keyword: str
    reason: str
    field: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnforcedKeyword:
    """A keyword of a schema that every text obeys; ``pointer`` is its JSON pointer."""

    pointer: str
    keyword: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstraintSpec:
    """One constraint as it was asked for.

    Attributes:
        kind: what `text` or `values` mean.
        text: the schema as JSON text, the regular expression, or the grammar; empty for the other kinds. A grammar
            ``@name`` is the one of that name in `grammars.library`.
        values: the choices; empty for the other kinds.
        whitespace: between JSON tokens; other kinds ignore it.
        best_effort: compile a schema with keywords that cannot be enforced, and report them, instead of refusing it.
        property_order: of the objects of a schema; other kinds ignore it.
        formats: what a schema's `format` means; other kinds ignore it.
        integral_floats: a schema's integers may also be spelled 1.0; other kinds ignore it.
        dialect: of a regular expression; other kinds ignore it.
        notation: of a grammar; one of the library has its own.
        start: rule of a grammar that texts start from; empty for the notation's own.
        structure: the parts of STRUCTURAL_TAGS and TOOL_CALLS.
        reasoning: free text that comes before; None for none.
        at: path of the protobuf field where it is not ``constraint.`` and the kind.

    Raises ConstraintError, naming field and mend.
    """

    kind: ConstraintKind
    text: str = ""
    values: tuple[str, ...] = ()
    whitespace: Whitespace = Whitespace.COMPACT
    best_effort: bool = False
    property_order: PropertyOrder = PropertyOrder.SCHEMA
    formats: Formats = Formats.ASSERT
    integral_floats: bool = False
    dialect: RegexDialect = RegexDialect.PYTHON
    notation: Notation = Notation.GBNF
    start: str = ""
    structure: StructuralTags | ToolCalls | None = None
    reasoning: Reasoning | None = None
    at: str = ""

    def __post_init__(self) -> None:
        has_text = self.kind in (ConstraintKind.JSON_SCHEMA, ConstraintKind.REGEX, ConstraintKind.GRAMMAR)
        assert has_text or not self.text
        assert self.kind is ConstraintKind.GRAMMAR or not self.start
        assert self.kind is ConstraintKind.CHOICES or not self.values
        is_structured = self.kind in (ConstraintKind.STRUCTURAL_TAGS, ConstraintKind.TOOL_CALLS)
        assert is_structured == (self.structure is not None)
        if has_text:
            check_text(self.field, self.text)
            if not self.text:
                raise ConstraintError(self.field, "is empty; give a JSON Schema, a regular expression or a grammar")
            check_text(f"{self.field}.start", self.start)
        elif self.kind is ConstraintKind.CHOICES:
            _check_choices(self.field, self.values)

    @property
    def field(self) -> str:
        """Path of the protobuf field that carries the constraint, for messages."""
        return self.at or f"constraint.{self.kind.value}"

    def normalised(self) -> ConstraintSpec:
        """An equal constraint, spelled the one way that `key` hashes.

        White space between the tokens of a schema and the order of choices mean nothing; the order of a schema's keys
        does (properties are generated in it). Linear in the size of the text.
        """
        is_schema = self.kind is ConstraintKind.JSON_SCHEMA
        is_json = is_schema or self.kind is ConstraintKind.JSON_OBJECT
        return replace(
            self,
            text=_STRING_OR_SPACE.sub(lambda match: match[1] or "", self.text) if is_schema else self.text,
            values=tuple(sorted(self.values)),
            whitespace=self.whitespace if is_json else Whitespace.COMPACT,
            best_effort=self.best_effort and is_schema,
            property_order=self.property_order if is_schema else PropertyOrder.SCHEMA,
            formats=self.formats if is_schema else Formats.ASSERT,
            integral_floats=self.integral_floats and is_schema,
            dialect=self.dialect if self.kind is ConstraintKind.REGEX else RegexDialect.PYTHON,
            structure=None if self.structure is None else self.structure.normalised(),
        )

    def key(self, *, fingerprint: str, backend: str) -> str:
        """SHA-256 of the constraint, the vocabulary's ``fingerprint`` and the backend's name."""
        same = self.normalised()
        switches = (same.whitespace, same.property_order, same.formats, same.dialect, same.notation)
        flags = (same.best_effort, same.integral_floats)
        options = (*(switch.value for switch in switches), *map(str, flags), same.start)
        parts = (same.kind.value, *options, fingerprint, backend, same.text)
        digest = hashlib.sha256()
        structured = () if same.structure is None else same.structure.key_parts()
        reasoning = () if same.reasoning is None else same.reasoning.key_parts()
        for part in (*parts, *same.values, *structured, *reasoning):
            encoded = part.encode()
            digest.update(len(encoded).to_bytes(8, "little"))
            digest.update(encoded)
        return digest.hexdigest()


def check_text(field: str, text: object) -> None:
    """Raise ConstraintError where ``text`` is not a string with a UTF-8 form."""
    if not isinstance(text, str):
        raise ConstraintError(field, f"is a {type(text).__name__}; give a string")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConstraintError(field, f"has a lone surrogate at index {error.start}; give valid Unicode") from error


def _check_choices(field: str, values: Iterable[object]) -> None:
    seen: dict[object, int] = {}
    for index, value in enumerate(values):
        path = f"{field}.values[{index}]"
        check_text(path, value)
        if not value:
            raise ConstraintError(path, "is empty; every choice needs at least one character")
        if value in seen:
            raise ConstraintError(path, f"repeats values[{seen[value]}]; give each choice once")
        seen[value] = index
    if not seen:
        raise ConstraintError(field, "has no values; give at least one choice")
