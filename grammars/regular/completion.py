"""Shortest ways to a word: how many bytes a state is away from acceptance, and which.

Invariant: answers are exact; what a search has found for the states on its way is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import Final

import numpy as np
from numpy.typing import NDArray

from decoding.errors import GrammarStateError

Moves = Iterable[tuple[NDArray[np.intp], int]]
MAX_SEARCHED: Final = 50_000
"""States that one search may expand."""


class Completions:
    """A* over the rows of an automaton (Hart, Nilsson and Raphael 1968); ``bound`` never overestimates."""

    def __init__(
        self,
        moves: Callable[[int], Moves],
        accepting: Callable[[int], bool],
        bound: Callable[[int], int],
    ) -> None:
        self._moves = moves
        self._accepting = accepting
        self._bound = bound
        self._distance: dict[int, int] = {}
        self._step: dict[int, tuple[int, int]] = {}

    def distance(self, state: int) -> int:
        """Bytes of the shortest completion."""
        found = self._distance.get(state)
        return self._search(state) if found is None else found

    def completion(self, state: int) -> bytes:
        """A shortest completion."""
        self.distance(state)
        found = bytearray()
        while self._distance[state]:
            byte, state = self._step[state]
            found.append(byte)
        return bytes(found)

    def _search(self, start: int) -> int:
        frontier = [(self._bound(start), start, 0)]
        best = {start: 0}
        parents: dict[int, tuple[int, int]] = {}
        for _ in range(MAX_SEARCHED):
            estimate, state, length = heappop(frontier)
            if length > best[state]:
                continue
            known = 0 if self._accepting(state) else self._distance.get(state)
            if known is not None and estimate >= length + known:
                return self._keep(start, state, known, parents)
            if known is not None:  # exact now, so it takes its place in the order
                heappush(frontier, (length + known, state, length))
                continue
            for members, successor in self._moves(state):
                if length + 1 < best.get(successor, length + 2):
                    best[successor] = length + 1
                    parents[successor] = (state, int(members[0]))
                    heappush(frontier, (length + 1 + self._bound(successor), successor, length + 1))
        raise GrammarStateError(f"no shortest completion was found within {MAX_SEARCHED} states")

    def _keep(self, start: int, state: int, distance: int, parents: dict[int, tuple[int, int]]) -> int:
        self._distance[state] = distance
        while state != start:
            parent, byte = parents[state]
            self._step[parent] = (byte, state)
            distance += 1
            self._distance[parent] = distance
            state = parent
        return distance
