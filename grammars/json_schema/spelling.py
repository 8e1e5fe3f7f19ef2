r"""Words in JSON spelling as a trie that is never built: a range of a sorted list and how many bytes of it are read.

    words     a"  ab"  b"          (0, 3, 0)  before the text
    index     0   1    2           (0, 2, 1)  after "a"      (2, 3, 1)  after "b"

Words have one spelling each (RFC 8259: raw where legal and where the vocabulary has tokens for it, else the short
escape, else ``\uxxxx``) and end with the closing quote. Invariant: no word is the beginning of another one, since the
quote comes at the end alone.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from grammars.matching.hints import FORBIDDEN, WordTable
from grammars.regular.charset import ANY, CharSet


class SpelledWords:
    """Sorted words.

    Attributes:
        words: the words in JSON spelling without the opening quote, sorted.
    """

    def __init__(self, words: Sequence[str], characters: CharSet = ANY) -> None:
        """``characters``: those that may stand raw; others are escaped."""
        escaped = _escaped(characters)
        spelled = [escaped(json.dumps(word, ensure_ascii=False)[1:]).encode() for word in words]
        order = sorted(range(len(spelled)), key=spelled.__getitem__)
        self.words = [spelled[index] for index in order]
        self.blob = np.frombuffer(b"".join(self.words), dtype=np.uint8)
        self.begins = np.cumsum([0, *map(len, self.words)]).astype(np.int32)
        self._places = np.empty(len(order), dtype=np.int32)
        self._places[order] = np.arange(len(order), dtype=np.int32)

    def with_outcomes(self, outcomes: Iterable[tuple[int, int]]) -> WordRanges:
        """These words with (index as given at construction, outcome) pairs; the others are forbidden."""
        table: npt.NDArray[np.int32] = np.full(len(self.words), FORBIDDEN, dtype=np.int32)
        for index, outcome in outcomes:
            table[self._places[index]] = outcome
        return WordRanges(self, table)


class WordRanges:
    """Spelled words, each with an outcome or FORBIDDEN."""

    def __init__(self, spelled: SpelledWords, outcomes: npt.NDArray[np.int32]) -> None:
        self.words = spelled.words
        self.table = WordTable(blob=spelled.blob, begins=spelled.begins, outcomes=outcomes)
        self._free_before: list[int] = [0, *np.cumsum(outcomes != FORBIDDEN).tolist()]

    def __len__(self) -> int:
        return len(self.words)

    def is_open(self, low: int, high: int) -> bool:
        """Whether one of these words is not forbidden."""
        return self._free_before[high] > self._free_before[low]

    def outcome(self, index: int) -> int:
        """The outcome of a word, or FORBIDDEN."""
        return int(self.table.outcomes[index])

    def common(self, low: int, high: int, depth: int) -> bytes:
        """What all these words go on with, without the closing quote."""
        first, last = self.words[low], self.words[high - 1]
        if high - low == 1:
            return first[depth:-1]
        end = depth
        while first[end] == last[end]:
            end += 1
        return first[depth:end]

    def branches(self, low: int, high: int, depth: int) -> list[tuple[int, int, int]]:
        """The next bytes of these words: (byte, low, high) each."""
        found = []
        while low < high:
            byte = self.words[low][depth]
            end = bisect_right(self.words, byte, low, high, key=lambda word: word[depth])
            found.append((byte, low, end))
            low = end
        return found


@cache
def _escaped(characters: CharSet) -> Callable[[str], str]:
    """Escapes what is not among ``characters`` in a text that has no other reason to be escaped any more."""
    ranges = "".join(f"{re.escape(chr(first))}-{re.escape(chr(last))}" for first, last in (ANY - characters).ranges())
    if not ranges:
        return str
    other = re.compile(f"[{ranges}]")
    return lambda text: other.sub(lambda found: _units(found[0]), text)


def _units(character: str) -> str:
    units = np.frombuffer(character.encode("utf-16-le"), dtype="<u2")
    return "".join(f"\\u{unit:04x}" for unit in units.tolist())
