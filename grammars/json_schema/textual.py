"""What can be said of a string, and the expression of a formula over it.

Invariant: an atom's expression is a language over decoded texts (code points); how texts are spelled in JSON comes
later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from grammars.json_schema.boolean import Formulas
from grammars.regular import expressions as regular
from grammars.regular.formats import format_expression


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


StringAtom = Words | Matches | Longer | HasFormat


def string_expression(
    strings: Formulas[StringAtom], formula: int, patterns: Mapping[str, regular.Expression]
) -> regular.Expression:
    """The language of a formula, given those of the patterns in it."""

    def literal(atom: StringAtom, is_positive: bool) -> regular.Expression:
        if isinstance(atom, Longer):
            return regular.length(atom.count + 1) if is_positive else regular.length(0, atom.count)
        expression = _expression(atom, patterns)
        return expression if is_positive else regular.complement(expression)

    return strings.fold(formula, literal, _joined)


def _expression(atom: StringAtom, patterns: Mapping[str, regular.Expression]) -> regular.Expression:
    match atom:
        case Words(texts):
            return regular.words(texts)
        case Matches(pattern):
            return patterns[pattern]
        case HasFormat(name):
            expression = format_expression(name)
            assert expression is not None
            return expression
    raise AssertionError(atom)


def _joined(is_conjunction: bool, parts: list[regular.Expression]) -> regular.Expression:
    return regular.intersection(*parts) if is_conjunction else regular.union(*parts)
