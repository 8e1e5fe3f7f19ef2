r"""Free text up to a marker: UTF-8, byte by byte, with the markers looked for all along (Aho and Corasick 1975).

A *place* is a node of the markers' trie (the longest piece of a marker that the text ends with) and what UTF-8 asks of
the next byte, of characters that the vocabulary can write. Text does not hold the markers that end it, nor those that
are *forbidden*.

    markers  </t>  <a>       text   x  <  /  b  <  a  >
                             node   0  1  2  0  1  5  found

Invariant: from every place that `steps` leads to, some text goes on; a special token is only entered within a marker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

from grammars.regular import build, chars, star
from grammars.regular.charset import ANY, CharSet
from grammars.vocabulary import SPECIAL_MARK

ROOT = 0
_NOT_FOUND = -1
_FORBIDDEN = -2

_SPECIAL = SPECIAL_MARK[0]
_WHOLE, _IN_SPECIAL = 0, -1
"""What UTF-8 asks of the next byte: any first one, or to go on with a special token. Other numbers: see `_moves`."""


class Place(NamedTuple):
    """Where free text stands."""

    node: int = ROOT
    utf8: int = _WHOLE

    @property
    def is_whole(self) -> bool:
        """No character is unfinished."""
        return self.utf8 == _WHOLE


class Found(NamedTuple):
    """A marker was completed."""

    marker: int


START = Place()


class Scanner:
    """Free text over some markers."""

    def __init__(self, markers: Sequence[bytes], forbidden: Sequence[bytes] = (), *, characters: CharSet = ANY) -> None:
        """No marker occurs in another one; special tokens in them are at their ends.

        ``characters``: those of the text; markers have no others.
        """
        self._moves = _moves(characters)
        self._next: list[dict[int, int]] = [{}]
        self._fail = [ROOT]
        self._found = [_NOT_FOUND]
        self._leads = [bool(markers)]
        self.depth = [0]
        for code in forbidden:
            self._insert(code, _FORBIDDEN)
        for index, code in enumerate(markers):
            self._insert(code, index)
        self._link()
        self._alive: dict[Place, bool] = {}

    def steps(self, place: Place) -> Iterator[tuple[int, Place | Found]]:
        """Every byte that may come next, and where it leads."""
        for byte in self._bytes(place):
            after = self._step(place, byte)
            if isinstance(after, Found) or (after is not None and self._is_alive(after)):
                yield byte, after

    def closing_steps(self, place: Place) -> Iterator[tuple[int, Place | Found]]:
        """Those of them that lead straight to a marker: they finish a character, or add to a marker's beginning."""
        if place.utf8 != _IN_SPECIAL and not place.is_whole and not self._marker_part(place.node):
            yield from self.steps(place)
            return
        node = self._marker_part(place.node)
        for byte, after in self._next[node].items():
            if self._leads[after]:
                found = self._found[after]
                is_special = byte == _SPECIAL or place.utf8 == _IN_SPECIAL
                utf8 = _IN_SPECIAL if is_special else self._moves[place.utf8][byte]
                yield byte, Found(found) if found >= 0 else Place(after, utf8)

    def goes_down(self, place: Place, after: Place | Found) -> bool:
        """Whether a step from a place added to the piece of a marker that it was at the end of."""
        if isinstance(after, Found):
            return after.marker in (self._found[child] for child in self._next[place.node].values())
        return self.depth[after.node] == self.depth[place.node] + 1 and self._leads[after.node]

    def _marker_part(self, node: int) -> int:
        """The longest piece of a marker that ends here, forbidden ones aside."""
        while node != ROOT and not self._leads[node]:
            node = self._fail[node]
        return node

    def _bytes(self, place: Place) -> Iterator[int]:
        if place.utf8 == _IN_SPECIAL:
            yield from self._next[place.node]
            return
        yield from self._moves[place.utf8]
        if place.is_whole:
            yield _SPECIAL

    def _step(self, place: Place, byte: int) -> Place | Found | None:
        if place.utf8 == _IN_SPECIAL:
            node, utf8 = self._next[place.node][byte], _IN_SPECIAL
        else:
            node = self._goto(place.node, byte)
            if byte == _SPECIAL and node == ROOT:
                return None
            utf8 = _IN_SPECIAL if byte == _SPECIAL else self._moves[place.utf8][byte]
        found = self._found[node]
        if found == _FORBIDDEN:
            return None
        return Place(node, utf8) if found == _NOT_FOUND else Found(found)

    def _is_alive(self, place: Place) -> bool:
        """Whether a character begun can be finished: a forbidden marker may hold the only way."""
        if place.is_whole or place.utf8 == _IN_SPECIAL:
            return True
        alive = self._alive.get(place)
        if alive is None:
            after = (self._step(place, byte) for byte in self._bytes(place))
            alive = any(step is not None and (isinstance(step, Found) or self._is_alive(step)) for step in after)
            self._alive[place] = alive
        return alive

    def _goto(self, node: int, byte: int) -> int:
        while node != ROOT and byte not in self._next[node]:
            node = self._fail[node]
        return self._next[node].get(byte, ROOT)

    def _insert(self, code: bytes, found: int) -> None:
        node = ROOT
        for byte in code:
            if byte not in self._next[node]:
                self._next[node][byte] = len(self._next)
                self._next.append({})
                self._fail.append(ROOT)
                self._found.append(_NOT_FOUND)
                self._leads.append(False)
                self.depth.append(self.depth[node] + 1)
            node = self._next[node][byte]
            self._leads[node] |= found >= 0
        self._found[node] = found

    def _link(self) -> None:
        """Breadth first, so that a node's shorter suffixes are linked before it."""
        queue = deque([ROOT])
        while queue:
            node = queue.popleft()
            for byte, child in self._next[node].items():
                self._fail[child] = self._goto(self._fail[node], byte) if node else ROOT
                if self._found[child] == _NOT_FOUND:
                    self._found[child] = self._found[self._fail[child]]
                queue.append(child)


@cache
def _moves(characters: CharSet) -> Mapping[int, Mapping[int, int]]:
    """By number of what UTF-8 asks: the bytes that may come next, and what it asks after them."""
    automaton = build(star(chars(characters)))
    numbers = {automaton.start: _WHOLE}
    pending = [automaton.start]
    moves: dict[int, Mapping[int, int]] = {}
    while pending:
        state = pending.pop()
        found: dict[int, int] = {}
        for members, after in automaton.moves(state):
            if after not in numbers:
                numbers[after] = len(numbers)
                pending.append(after)
            found.update(dict.fromkeys(members.tolist(), numbers[after]))
        moves[numbers[state]] = dict(sorted(found.items()))
    return MappingProxyType(moves)
