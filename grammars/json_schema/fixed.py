"""Automata that nearly every schema uses, built once per process: any string, any key, any number, any integer.

Invariant: a fixed automaton never changes, and its states are numbered alike in every grammar.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import numpy.typing as npt

from grammars.json_schema.gaps import gap_automaton
from grammars.json_schema.numeric import CANONICAL
from grammars.matching.tables import NO_OUTCOME
from grammars.regular import ANY_TEXT, Automaton, build, concat, intersection, json_string, literal, optional, tagged
from grammars.regular.charset import CharSet
from grammars.regular.formats import format_expression
from grammars.regular.numbers import integer, number

CLOSES = -1
"""The code of the closing quote."""
_QUOTE = b'"'[0]


class Kind(enum.IntEnum):
    """Which language. Integers, since names of states hold kinds and are hashed all the time."""

    STRING = enum.auto()
    KEY = enum.auto()
    NUMBER = enum.auto()
    """Any number."""
    INTEGER = enum.auto()
    """Any integer, ``.0`` behind it or not."""
    PLAIN_INTEGER = enum.auto()
    CANONICAL_NUMBER = enum.auto()
    """A number in its one spelling."""
    CANONICAL_INTEGER = enum.auto()
    """An integer in its one spelling."""
    GAP = enum.auto()
    """White space between tokens."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FixedAutomaton:
    """All rows of an automaton.

    Attributes:
        rows: int32 [S, 256]; states count from 1, 0 is dead, CLOSES ends a string.
        final: 0 where a number may end, else NO_OUTCOME.
        start: the state before the first byte.
    """

    rows: npt.NDArray[np.int32]
    final: npt.NDArray[np.int32]
    start: int

    @cached_property
    def first_row(self) -> tuple[tuple[int, int], ...]:
        """The bytes that may come first, with the states that they lead to."""
        row = self.rows[self.start - 1]
        return tuple((byte, int(row[byte])) for byte in np.flatnonzero(row).tolist())

    @cached_property
    def bytes_to(self) -> tuple[tuple[tuple[int, npt.NDArray[np.intp]], ...], ...]:
        """By state: the codes of its row that are not dead, with the bytes that have each."""
        return tuple(
            tuple((code, np.flatnonzero(row == code)) for code in np.unique(row).tolist() if code) for row in self.rows
        )


@cache
def fixed(kind: Kind, characters: CharSet) -> FixedAutomaton:
    """The automaton of a kind, for texts that have no characters but ``characters`` raw."""
    if kind is Kind.GAP:
        rows, final, start = gap_automaton()
        missing = [ord(space) for space in " \t\n\r" if ord(space) not in characters]
        if ord("\n") in missing:
            missing.append(ord("\r"))  # does not come alone
        rows[:, missing] = 0  # a gap may end after each other byte
        return FixedAutomaton(rows=rows, final=final, start=start)
    quoted = kind in (Kind.STRING, Kind.KEY)
    automaton = build(
        {
            Kind.STRING: json_string(ANY_TEXT),
            Kind.KEY: json_string(ANY_TEXT, escapes="canonical"),
            Kind.NUMBER: number(),
            Kind.INTEGER: concat(integer(), optional(literal(".0"))),
            Kind.PLAIN_INTEGER: integer(),
            Kind.CANONICAL_NUMBER: CANONICAL,
            Kind.CANONICAL_INTEGER: intersection(integer(), CANONICAL),
        }[kind],
        characters=characters,
    )
    built = []
    outcomes = []
    state = 1
    while state < automaton.num_states:
        row = automaton.row(state).copy()
        if quoted and automaton.accepting(int(row[_QUOTE])):
            row[_QUOTE] = CLOSES
        built.append(row)
        outcomes.append(0 if automaton.accepting(state) and not quoted else NO_OUTCOME)
        state += 1
    return FixedAutomaton(
        rows=np.array(built, dtype=np.int32), final=np.array(outcomes, dtype=np.int32), start=automaton.start
    )


@cache
def format_automaton(name: str, outcome: int, characters: CharSet) -> Automaton:
    """JSON strings of a format, tagged with ``outcome``: shared, so that its rows are built once per process."""
    expression = format_expression(name)
    assert expression is not None
    return build(tagged(outcome, json_string(expression)), characters=characters)
