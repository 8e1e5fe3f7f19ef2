"""A regular language as a source of states: no stack but the bottom.

Invariant: states are numbered as they are met; the end of the text is final wherever the automaton accepts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grammars.matching.tables import NO_OUTCOME, Tables
from grammars.regular.automaton import Automaton, build
from grammars.regular.charset import ANY, CharSet
from grammars.regular.expressions import Expression


@dataclass(frozen=True, slots=True)
class RegularLanguage:
    """Texts that match an expression in full and have no characters but ``characters``."""

    expression: Expression
    characters: CharSet = ANY

    def source(self) -> RegularSource:
        """A fresh source of states."""
        return RegularSource(build(self.expression, characters=self.characters))


class RegularSource:
    """Rows of one automaton, renumbered."""

    def __init__(self, automaton: Automaton) -> None:
        self._automaton = automaton
        self._inner: dict[int, int] = {}
        self._ids: dict[int, int] = {}
        self._end = 0

    def start(self, tables: Tables) -> tuple[int, int]:
        """The state before the text."""
        tables.least_of = self._least
        self._end = tables.add_state()
        tables.set_row(self._end, (), final=0)
        return self._state(tables, self._automaton.start), tables.add_handler(1)

    def expand(self, tables: Tables, state: int) -> None:
        """Renumber one row."""
        inner = self._inner[state]
        inner_row = self._automaton.row(inner)
        row = np.zeros(256, dtype=np.int32)
        for after in np.unique(inner_row).tolist():
            if after:
                row[inner_row == after] = self._state(tables, after)
        tables.set_dense_row(state, row, 0 if self._automaton.accepting(inner) else NO_OUTCOME)

    def resolve(self, tables: Tables, handler: int, outcome: int) -> int:  # noqa: ARG002 - there is one handler
        """After the end nothing follows."""
        return self._end

    def _least(self, state: int) -> int:
        inner = self._inner.get(state)
        return 0 if inner is None else self._automaton.distance_at_least(inner)

    def _state(self, tables: Tables, inner: int) -> int:
        state = self._ids.get(inner)
        if state is None:
            state = self._ids[inner] = tables.add_state()
            self._inner[state] = inner
        return state
