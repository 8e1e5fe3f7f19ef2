"""How many remembered words can still be read from a state.

Invariant: never counts fewer words than there are, up to its limit.
"""

from __future__ import annotations

import numpy as np

from grammars.matching.automaton import PushdownAutomaton

MAX_COUNTED = 256
"""Where a state has more words to come than this, all of them being used is not looked for."""


class Words:
    """Counts of words to come, by state."""

    def __init__(self, automaton: PushdownAutomaton) -> None:
        self._automaton = automaton
        self._counts: dict[int, int] = {}
        self._open: set[int] = set()

    def to_come(self, state: int) -> int:
        """The number of words that end at or after ``state``, or `MAX_COUNTED` + 1 where there are more.

        A choice without end counts as more, and so does a word that is not remembered: it is free to come.
        """
        if state in self._open:
            return MAX_COUNTED + 1
        known = self._counts.get(state)
        if known is None:
            self._open.add(state)
            known = self._counts[state] = self._counted(state)
            self._open.discard(state)
        return known

    def _counted(self, state: int) -> int:
        self._automaton.final(state)
        row = self._automaton.tables.rows[state]
        if (row == state).any():
            return MAX_COUNTED + 1
        total = 0
        codes, counts = np.unique(row, return_counts=True)
        for code, count in zip(codes.tolist(), counts.tolist(), strict=True):
            if code < 0:
                total += count
            elif code > 0:
                total += count * self.to_come(code)
            if total > MAX_COUNTED:
                return MAX_COUNTED + 1
        return total
