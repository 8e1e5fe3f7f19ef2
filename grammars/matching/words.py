"""How many different words can still be read.

Invariant: never counts fewer words than there are, up to its limit.
"""

from __future__ import annotations

import numpy as np

from grammars.matching.automaton import Configuration, PushdownAutomaton
from grammars.matching.tables import NO_OUTCOME

MAX_COUNTED = 256
"""Where more words are to come than this, all of them being used is not looked for."""
MAX_LEVELS = 8
"""Words that nest deeper than this inside are taken to be more."""

_MORE = MAX_COUNTED + 1


class Words:
    """Counts of words to come, by configuration."""

    def __init__(self, automaton: PushdownAutomaton) -> None:
        self._automaton = automaton
        self._counts: dict[tuple[Configuration, int], int] = {}
        self._open: set[tuple[Configuration, int]] = set()

    def to_come(self, configuration: Configuration, word: int) -> int:
        """The number of ways to end the word begun with stack ``word``, or `MAX_COUNTED` + 1 where there are more.

        A choice without end counts as more, and so does an end that is not remembered: it is free to come. White space
        that does not count makes no ways of its own.
        """
        key = (configuration, word)
        depth_of = self._automaton.stacks.depth_of
        if key in self._open or depth_of[configuration.stack] > depth_of[word] + MAX_LEVELS:
            return _MORE
        known = self._counts.get(key)
        if known is None:
            self._open.add(key)
            known = self._counts[key] = self._counted(configuration, word)
            self._open.discard(key)
        return known

    def _counted(self, configuration: Configuration, word: int) -> int:
        automaton = self._automaton
        state, stack = configuration
        outcome = automaton.final(state)
        row = automaton.tables.rows[state]
        if (row == state).any():
            return _MORE
        total = 0 if outcome == NO_OUTCOME else self._ended(stack, outcome, word)
        codes, counts = np.unique(row, return_counts=True)
        for code, count in zip(codes.tolist(), counts.tolist(), strict=True):
            if total > MAX_COUNTED:
                return _MORE
            if code:
                total += count * self._after(code, configuration, word)
        return min(total, _MORE)

    def _after(self, code: int, configuration: Configuration, word: int) -> int:
        if code > 0:
            return self.to_come(Configuration(code, configuration.stack), word)
        tables = self._automaton.tables
        handler, target, outcome = tables.action_of[-code]
        if not handler:
            return self._ended(configuration.stack, outcome, word)
        if tables.remembering_of[handler].is_space:
            return 0
        return self.to_come(Configuration(target, self._automaton.stacks.push(handler, configuration.stack)), word)

    def _ended(self, stack: int, outcome: int, word: int) -> int:
        if stack == word:
            handler = self._automaton.stacks.handler_of[stack]
            return 1 if outcome < self._automaton.tables.remembering_of[handler].outcomes else _MORE
        return self.to_come(self._automaton.popped(stack, outcome), word)
