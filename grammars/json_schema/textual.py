"""What can be said of a string, and the expression of a formula over it.

Invariant: an atom's expression is a language over decoded texts (code points); how texts are spelled in JSON comes
later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from grammars.json_schema.boolean import Formulas
from grammars.regular import expressions as regular
from grammars.regular.formats import format_expression
from grammars.regular.regex.compile import compile_regex


@dataclass(frozen=True, slots=True)
class Words:
    """One of these strings."""

    texts: frozenset[str]


@dataclass(frozen=True, slots=True)
class Matches:
    """Some part of the string matches an ECMA-262 pattern."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Longer:
    """More than `count` code points."""

    count: int


@dataclass(frozen=True, slots=True)
class HasFormat:
    """Of a format that JSON Schema names."""

    name: str


EXACT_FORMATS = frozenset(("ipv4", "ipv6", "json-pointer", "uuid"))
"""Formats whose expression is the whole format, so that its complement is what is not of the format."""

_NECESSARY: Mapping[str, str] = MappingProxyType(
    {
        "date": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
        "date-time": "^[0-9]{4}-[0-9]{2}-[0-9]{2}[^0-9]",
        "duration": "^P",
        "email": "@",
        "hostname": "^[^ ]*$",
        "idn-email": "@",
        "iri": ":",
        "relative-json-pointer": "^[0-9]",
        "time": "^[0-9]{2}:[0-9]{2}:",
        "uri": ":",
    }
)
"""Patterns that every text of a format holds."""


@dataclass(frozen=True, slots=True)
class Canonical:
    r"""Written raw where JSON allows it, else in the short escape, else as ``\u00xx``; says nothing of the string."""


StringAtom = Words | Matches | Longer | HasFormat | Canonical


def string_expression(
    strings: Formulas[StringAtom], formula: int, patterns: Mapping[str, regular.Expression]
) -> regular.Expression:
    """The language of a formula, given those of the patterns in it."""

    def literal(atom: StringAtom, is_positive: bool) -> regular.Expression:
        if isinstance(atom, Longer):
            return regular.length(atom.count + 1) if is_positive else regular.length(0, atom.count)
        expression = _expression(atom, patterns)
        if is_positive:
            return expression
        if isinstance(atom, HasFormat) and atom.name not in EXACT_FORMATS:
            return _certainly_not(atom.name)
        return regular.complement(expression)

    return strings.fold(formula, literal, _joined)


def _expression(atom: StringAtom, patterns: Mapping[str, regular.Expression]) -> regular.Expression:
    match atom:
        case Canonical():
            return regular.ANY_TEXT
        case Words(texts):
            return regular.words(texts)
        case Matches(pattern):
            return patterns[pattern]
        case HasFormat(name):
            expression = format_expression(name)
            assert expression is not None
            return expression
    raise AssertionError(atom)


def _certainly_not(name: str) -> regular.Expression:
    """Texts that are not of a format by any reading of it; others are neither asserted nor denied to be."""
    pattern = _NECESSARY.get(name)
    return regular.EMPTY if pattern is None else regular.complement(compile_regex(pattern, dialect="ecma", search=True))


def _joined(is_conjunction: bool, parts: list[regular.Expression]) -> regular.Expression:
    return regular.intersection(*parts) if is_conjunction else regular.union(*parts)
