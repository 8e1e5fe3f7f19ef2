"""The characters that a set of classes can tell apart, as bit sets over minterms.

A minterm is a maximal set of code points that lie in exactly the same classes; a guard is an `int` with bit m set for
each minterm m in it. Characters that no text may have raw (a vocabulary has no tokens for them) are minterms like
others, but in no guard. Invariant: minterms are disjoint and together hold every Unicode scalar value.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from grammars.regular.charset import ANY, CharSet


class Alphabet:
    """Minterms of ``classes`` (Owens, Reppy and Turon 2009, section 4.2, over ranges instead of bytes).

    Attributes:
        characters: what a text may have raw.
        size: how many minterms there are.
        full: the guard of all characters that a term may mean.
    """

    def __init__(self, classes: Iterable[CharSet], characters: CharSet = ANY, *, has_escapes: bool = False) -> None:
        """With ``has_escapes`` terms may mean other characters than ``characters`` too: those are spelled otherwise."""
        self.characters = characters
        universe = ANY if has_escapes else characters
        distinct = dict.fromkeys((universe, *classes))
        meant = list(distinct) if universe == ANY else [*(charset & universe for charset in distinct), ANY - universe]
        toggles: dict[int, int] = {}
        for i, charset in enumerate(meant):
            for bound in charset.bounds:
                toggles[bound] = toggles.get(bound, 0) ^ (1 << i)
        self._starts = sorted(toggles)
        self._labels: list[int] = []
        minterms: dict[int, int] = {0: -1}
        signature = 0
        for start in self._starts:
            signature ^= toggles[start]
            self._labels.append(minterms.setdefault(signature, len(minterms) - 1))
        self.size = len(minterms) - 1
        self._guards = dict(zip(distinct, _members(minterms, len(meant)), strict=False))
        self.full = self._guards[universe]
        self._ascii = self._minterms_of_ascii()
        self._ascii_bytes: dict[int, NDArray[np.intp]] = {}
        self._alike: dict[tuple[int, int], int] = {}
        self._by_runs: dict[tuple[int, tuple[int, ...], tuple[int, ...]], int] = {}
        self._within: dict[tuple[int, int], int] = {}

    def _minterms_of_ascii(self) -> NDArray[np.intp]:
        minterms = np.empty(128, np.intp)
        for start, end, label in zip(self._starts, self._starts[1:], self._labels, strict=False):
            if start >= 128:
                break
            minterms[start:end] = label
        return minterms

    def guard(self, charset: CharSet) -> int:
        """The minterms that make up one of the classes given at construction."""
        return self._guards[charset]

    def run(self, code_point: int) -> tuple[int, int]:
        """The minterm of a code point (-1 for a surrogate) and the last code point of the run of it from there on."""
        i = bisect_right(self._starts, code_point)
        return self._labels[i - 1], self._starts[i] - 1

    def within(self, first: int, last: int) -> int:
        """The minterms that have a member from ``first`` to ``last``; surrogates count for nothing.

        Kept: what is asked for are blocks of encodings, of which there are few.
        """
        if first == last:
            minterm, _ = self.run(first)
            return 1 << minterm if minterm >= 0 else 0
        guard = self._within.get((first, last))
        if guard is not None:
            return guard
        guard = 0
        for i in range(bisect_right(self._starts, first) - 1, bisect_right(self._starts, last)):
            if self._labels[i] >= 0:
                guard |= 1 << self._labels[i]
        self._within[first, last] = guard
        return guard

    def alike(self, first: int, last: int) -> int:
        """The start of the first block met that has the same minterms at the same distances from its start.

        States within blocks that are alike are the same, which keeps them few where a set has thousands of ranges.
        """
        found = self._alike.get((first, last))
        if found is None:
            low, high = bisect_right(self._starts, first), bisect_right(self._starts, last)
            distances = tuple(start - first for start in self._starts[low:high])
            runs = (last - first, distances, tuple(self._labels[low - 1 : high]))
            found = self._alike[first, last] = self._by_runs.setdefault(runs, first)
        return found

    def ascii_bytes(self, guard: int) -> NDArray[np.intp]:
        """The bytes below 128 in a guard, as an index array; kept."""
        found = self._ascii_bytes.get(guard)
        if found is None:
            member = np.array([guard >> m & 1 for m in range(self.size)], np.bool_)
            found = self._ascii_bytes[guard] = np.flatnonzero(member[self._ascii])
        return found


def _members(minterms: dict[int, int], count: int) -> list[int]:
    guards = [0] * count
    for signature, minterm in minterms.items():
        rest = signature
        while rest:
            low = rest & -rest
            guards[low.bit_length() - 1] |= 1 << minterm
            rest ^= low
    return guards
