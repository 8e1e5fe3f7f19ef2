"""How many different words can still be read.

Every live beginning of a word becomes at least one word, and different beginnings of one length become different ones.
So it is enough to go on byte by byte, all beginnings at once, until they are many or have all ended.

Invariant: a count is never larger than the number of words, and exact where all beginnings have ended.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from decoding.errors import GrammarStateError
from grammars.matching.automaton import Configuration, PushdownAutomaton
from grammars.matching.tables import NO_OUTCOME

FREE = 1 << 30
"""Ways of a word that is not remembered: it is free to come."""
MAX_LENGTH = 1 << 16
"""Words that are longer in bytes are not counted out."""


class Words:
    """Counts of words to come, by configuration."""

    def __init__(self, automaton: PushdownAutomaton) -> None:
        self._automaton = automaton
        self._counts: dict[tuple[Configuration, int], int] = {}
        self._exact: set[tuple[Configuration, int]] = set()
        self._codes: dict[int, list[tuple[int, int]]] = {}

    def are_more(self, than: int, configuration: Configuration, word: int) -> bool:
        """Whether there are more than so many ways to end the word begun with stack ``word``.

        A word that is not remembered makes for many. White space that does not count makes no ways of its own.
        """
        key = (configuration, word)
        known = self._counts.get(key, 0)
        if known <= than and key not in self._exact:
            known = self._counts[key] = self._counted(than, key)
        return known > than

    def _counted(self, than: int, key: tuple[Configuration, int]) -> int:
        """The number of ways, exactly where it is at most ``than``."""
        configuration, word = key
        beginnings = Counter({configuration: 1})
        ended = 0
        for _ in range(MAX_LENGTH):
            beginnings, ways = self._one_byte_on(beginnings, word)
            ended += ways
            if not beginnings:
                self._exact.add(key)
                return ended
            if ended + beginnings.total() > than:
                return ended + beginnings.total()
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
            for code, count in self._summary(state):
                if code > 0:
                    longer[Configuration(code, stack)] += ways * count
                else:
                    ended += ways * count * self._after(code, stack, word, longer, ways * count)
        return longer, ended

    def _summary(self, state: int) -> list[tuple[int, int]]:
        """The live codes of a row, and how many bytes have each."""
        summary = self._codes.get(state)
        if summary is None:
            codes, counts = np.unique(self._automaton.tables.rows[state], return_counts=True)
            summary = [pair for pair in zip(codes.tolist(), counts.tolist(), strict=True) if pair[0]]
            self._codes[state] = summary
        return summary

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
        return 1 if outcome < self._automaton.remembering(stack).outcomes else FREE
