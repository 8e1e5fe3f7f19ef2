"""Sets of code points as inversion lists.

Invariant: a set holds Unicode scalar values only; surrogates (U+D800 to U+DFFF) are in no set, so that every language
built from sets consists of valid UTF-8.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

MAX_CODE_POINT = 0x10FFFF
_SURROGATES = (0xD800, 0xE000)


@dataclass(frozen=True, slots=True)
class CharSet:
    """An immutable set of code points. Build it with `of`, `span` or `from_ranges`.

    ``bounds`` is strictly increasing and of even length; code points in [bounds[0], bounds[1]), [bounds[2], bounds[3]),
    ... are members (an inversion list).
    """

    bounds: tuple[int, ...]

    @staticmethod
    def from_ranges(ranges: Iterable[tuple[int, int]]) -> CharSet:
        """The union of inclusive ranges (first, last), in any order, overlapping or not."""
        bounds: list[int] = []
        for first, last in sorted(ranges):
            if last < first:
                continue
            if bounds and first <= bounds[-1]:
                bounds[-1] = max(bounds[-1], last + 1)
            else:
                bounds += (first, last + 1)
        return CharSet(_without_surrogates(tuple(bounds)))

    @staticmethod
    def of(characters: str) -> CharSet:
        """The characters of a string."""
        return CharSet.from_ranges((ord(c), ord(c)) for c in characters)

    @staticmethod
    def span(first: str, last: str) -> CharSet:
        """The characters from ``first`` to ``last``, both included."""
        return CharSet.from_ranges([(ord(first), ord(last))])

    def ranges(self) -> list[tuple[int, int]]:
        """The maximal inclusive ranges, in order."""
        return [(self.bounds[i], self.bounds[i + 1] - 1) for i in range(0, len(self.bounds), 2)]

    def __contains__(self, code_point: int) -> bool:
        return bisect_right(self.bounds, code_point) % 2 == 1

    def __bool__(self) -> bool:
        return bool(self.bounds)

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.ranges())

    def __or__(self, other: CharSet) -> CharSet:
        return CharSet.from_ranges(self.ranges() + other.ranges())

    def __invert__(self) -> CharSet:
        edges = (0, *self.bounds, MAX_CODE_POINT + 1)
        start = 2 if edges[1] == 0 else 0
        stop = len(edges) - 2 if edges[-2] == MAX_CODE_POINT + 1 else len(edges)
        return CharSet(_without_surrogates(edges[start:stop]))

    def __and__(self, other: CharSet) -> CharSet:
        return ~(~self | ~other)

    def __sub__(self, other: CharSet) -> CharSet:
        return ~(~self | other)


def _without_surrogates(bounds: tuple[int, ...]) -> tuple[int, ...]:
    first, end = _SURROGATES
    if not bounds or bounds[-1] <= first or bounds[0] >= end:
        return bounds
    before, upto = bisect_left(bounds, first), bisect_right(bounds, end)
    closed, opened = (first,) * (before % 2), (end,) * (upto % 2)  # where a range reaches across an edge
    return bounds[:before] + closed + opened + bounds[upto:]


ANY = CharSet.from_ranges([(0, MAX_CODE_POINT)])
NONE = CharSet(())
