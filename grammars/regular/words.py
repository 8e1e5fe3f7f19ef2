"""A machine for a finite list of words: a sorted array walked as if it were a trie.

Invariant: a state (low, high, depth) stands for the words at positions low to high - 1, which share their first
``depth`` characters; there is at least one.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from grammars.regular.charset import CharSet

WordState = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class WordList:
    """The machine of sorted, distinct words."""

    words: tuple[str, ...]
    _singles: dict[str, CharSet] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        singles = {c: CharSet.of(c) for c in set().union(*self.words)}
        object.__setattr__(self, "_singles", singles)

    def start(self) -> Hashable:
        """All words, nothing read."""
        return (0, len(self.words), 0)

    def classes(self) -> Iterable[CharSet]:
        """One set per character."""
        return self._singles.values()

    def arcs(self, state: Hashable) -> Iterable[tuple[CharSet, Hashable]]:
        """One arc per next character."""
        low, high, depth = _typed(state)
        words = self.words
        if len(words[low]) == depth:
            low += 1
        while low < high:
            character = words[low][depth]
            end = bisect_right(words, character, low, high, key=lambda word: word[depth])
            yield self._singles[character], (low, end, depth + 1)
            low = end

    def accepts(self, state: Hashable) -> bool:
        """The first of the words in question is read to its end."""
        low, _, depth = _typed(state)
        return len(self.words[low]) == depth

    def shortest(self, state: Hashable) -> int:
        """What is left of the shortest of a few words; a bound of one for many."""
        low, high, depth = _typed(state)
        if high - low > 8:
            return 0 if self.accepts(state) else 1
        return min(map(len, self.words[low:high])) - depth

    def identity(self) -> str:
        """A digest of the words."""
        return "words:" + hashlib.sha256(repr(self.words).encode()).hexdigest()


def _typed(state: Hashable) -> WordState:
    assert isinstance(state, tuple)
    return state
