"""How many different words can still be read.

Every live beginning of a word becomes at least one word, and different beginnings of one length become different ones.
So it is enough to go on byte by byte, all beginnings at once, until they are many or have all ended.

Invariant: never counts more words than there are, and exactly where there are at most `MAX_COUNTED`.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from decoding.errors import GrammarStateError
from grammars.matching.automaton import Configuration, PushdownAutomaton
from grammars.matching.tables import NO_OUTCOME

MAX_COUNTED = 4096
"""Counting stops where there are more."""
MAX_LENGTH = 1 << 16
"""Words that are longer in bytes are not counted out."""


class Words:
    """Counts of words to come, by configuration."""

    def __init__(self, automaton: PushdownAutomaton) -> None:
        self._automaton = automaton
        self._counts: dict[tuple[Configuration, int], int] = {}

    def to_come(self, configuration: Configuration, word: int) -> int:
        """The number of ways to end the word begun with stack ``word``, or `MAX_COUNTED` + 1 where there are more.

        A word that is not remembered counts as more: it is free to come. White space that does not count makes no ways
        of its own.
        """
        key = (configuration, word)
        known = self._counts.get(key)
        if known is None:
            known = self._counts[key] = self._counted(configuration, word)
        return known

    def _counted(self, configuration: Configuration, word: int) -> int:
        beginnings = Counter({configuration: 1})
        ended = 0
        for _ in range(MAX_LENGTH):
            beginnings, ways = self._one_byte_on(beginnings, word)
            ended += ways
            if ended + beginnings.total() > MAX_COUNTED:
                return MAX_COUNTED + 1
            if not beginnings:
                return ended
        raise GrammarStateError(f"a word that must not come again goes on for more than {MAX_LENGTH} bytes")

    def _one_byte_on(self, beginnings: Counter[Configuration], word: int) -> tuple[Counter[Configuration], int]:
        """The beginnings one byte longer, and how many words ended."""
        longer: Counter[Configuration] = Counter()
        ended = 0
        for configuration, ways in beginnings.items():
            state, stack = configuration
            outcome = self._automaton.final(state)
            if outcome != NO_OUTCOME:
                ended += ways * self._end(stack, outcome, word, longer, ways)
            codes, counts = np.unique(self._automaton.tables.rows[state], return_counts=True)
            for code, count in zip(codes.tolist(), counts.tolist(), strict=True):
                if code > 0:
                    longer[Configuration(code, stack)] += ways * count
                elif code < 0:
                    ended += ways * count * self._after(code, stack, word, longer, ways * count)
        return longer, ended

    def _after(self, code: int, stack: int, word: int, longer: Counter[Configuration], ways: int) -> int:
        tables = self._automaton.tables
        handler, target, outcome = tables.action_of[-code]
        if not handler:
            return self._end(stack, outcome, word, longer, ways)
        if not tables.remembering_of[handler].is_space:
            longer[Configuration(target, self._automaton.stacks.push(handler, stack))] += ways
        return 0

    def _end(self, stack: int, outcome: int, word: int, longer: Counter[Configuration], ways: int) -> int:
        """1 where the word itself ends with a pop of ``stack``; what goes on after a pop inside it joins ``longer``."""
        if stack != word:
            longer[self._automaton.popped(stack, outcome)] += ways
            return 0
        return 1 if outcome < self._automaton.remembering(stack).outcomes else MAX_COUNTED + 1
