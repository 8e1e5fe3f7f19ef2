r"""Words in JSON spelling as a trie that is never built: a range of a sorted list and how many bytes of it are read.

    words     a"  ab"  b"          (0, 3, 0)  before the text
    index     0   1    2           (0, 2, 1)  after "a"      (2, 3, 1)  after "b"

Words have one spelling each (RFC 8259: raw where legal, else the short escape, else ``\\u00xx``) and end with the
closing quote. Invariant: no word is the beginning of another one, since the quote comes at the end alone.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable

import numpy as np

from grammars.matching.hints import FORBIDDEN, WordTable


class WordRanges:
    """Sorted words, each with an outcome or FORBIDDEN."""

    def __init__(self, words: Iterable[tuple[str, int]]) -> None:
        """``words`` without their quotes and escapes, each with its outcome."""
        spelled = sorted((json.dumps(word, ensure_ascii=False)[1:].encode(), outcome) for word, outcome in words)
        self.words = [word for word, _ in spelled]
        self.table = WordTable(
            blob=np.frombuffer(b"".join(self.words), dtype=np.uint8),
            begins=np.cumsum([0, *map(len, self.words)]).astype(np.int32),
            outcomes=np.array([outcome for _, outcome in spelled], dtype=np.int32),
        )
        self._free_before = np.cumsum([0, *(outcome != FORBIDDEN for _, outcome in spelled)]).tolist()

    def __len__(self) -> int:
        return len(self.words)

    def is_open(self, low: int, high: int) -> bool:
        """Whether one of these words is not forbidden."""
        return bool(self._free_before[high] > self._free_before[low])

    def outcome(self, index: int) -> int:
        """The outcome of a word, or FORBIDDEN."""
        return int(self.table.outcomes[index])

    def branches(self, low: int, high: int, depth: int) -> list[tuple[int, int, int]]:
        """The next bytes of these words: (byte, low, high) each."""
        found = []
        while low < high:
            byte = self.words[low][depth]
            end = bisect_right(self.words, byte, low, high, key=lambda word: word[depth])
            found.append((byte, low, end))
            low = end
        return found
