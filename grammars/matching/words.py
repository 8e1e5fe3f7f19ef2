"""How many remembered words can still be read from a state.

Invariant: never counts fewer words than there are, up to its limit.
"""

from __future__ import annotations

import numpy as np

from grammars.matching.automaton import PushdownAutomaton


def count_words(automaton: PushdownAutomaton, state: int, limit: int) -> int:
    """The number of words that end at or after ``state``, or ``limit + 1`` where it is larger.

    A choice without end counts as more than any limit, and so does a word that is not remembered: it is free to come.
    """
    return _Counting(automaton, limit).from_state(state)


class _Counting:
    """Depth first; a state that is met again while it is open is a choice without end."""

    def __init__(self, automaton: PushdownAutomaton, limit: int) -> None:
        self._automaton = automaton
        self._limit = limit
        self._open: set[int] = set()
        self._known: dict[int, int] = {}

    def from_state(self, state: int) -> int:
        if state in self._open:
            return self._limit + 1
        known = self._known.get(state)
        if known is not None:
            return known
        self._open.add(state)
        self._automaton.final(state)
        total = 0
        codes, counts = np.unique(self._automaton.tables.rows[state], return_counts=True)
        for code, count in zip(codes.tolist(), counts.tolist(), strict=True):
            if code < 0:
                total += count
            elif code > 0:
                total += count * self.from_state(code)
            if total > self._limit:
                break
        self._open.discard(state)
        self._known[state] = min(total, self._limit + 1)
        return self._known[state]
