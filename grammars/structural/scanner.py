r"""Free text up to a marker: UTF-8, byte by byte, with the markers looked for all along (Aho and Corasick 1975).

A *place* is a node of the markers' trie (the longest piece of a marker that the text ends with) and what UTF-8 asks of
the next byte. Text does not hold the markers that end it, nor those that are *forbidden*.

    markers  </t>  <a>       text   x  <  /  b  <  a  >
                             node   0  1  2  0  1  5  found

Invariant: from every place that `steps` leads to, some text goes on; a special token is only entered within a marker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from grammars.vocabulary import SPECIAL_MARK

ROOT = 0
_NOT_FOUND = -1
_FORBIDDEN = -2

_SPECIAL = SPECIAL_MARK[0]
_WHOLE, _ONE, _TWO, _THREE, _E0, _ED, _F0, _F4, _IN_SPECIAL = range(9)
"""What UTF-8 asks of the next byte (RFC 3629): any first one, so many continuations, or one that a lead byte bounds."""
_MOVES: dict[int, tuple[tuple[int, int, int], ...]] = {
    _WHOLE: (
        (0x00, 0x7F, _WHOLE), (0xC2, 0xDF, _ONE), (0xE0, 0xE0, _E0), (0xE1, 0xEC, _TWO), (0xED, 0xED, _ED),
        (0xEE, 0xEF, _TWO), (0xF0, 0xF0, _F0), (0xF1, 0xF3, _THREE), (0xF4, 0xF4, _F4),
    ),
    _ONE: ((0x80, 0xBF, _WHOLE),),
    _TWO: ((0x80, 0xBF, _ONE),),
    _THREE: ((0x80, 0xBF, _TWO),),
    _E0: ((0xA0, 0xBF, _ONE),),
    _ED: ((0x80, 0x9F, _ONE),),
    _F0: ((0x90, 0xBF, _TWO),),
    _F4: ((0x80, 0x8F, _TWO),),
    _IN_SPECIAL: (),
}  # fmt: skip


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

    def __init__(self, markers: Sequence[bytes], forbidden: Sequence[bytes] = ()) -> None:
        """No marker occurs in another one; special tokens in them are at their ends."""
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
                utf8 = _IN_SPECIAL if byte == _SPECIAL or place.utf8 == _IN_SPECIAL else self._utf8(place.utf8, byte)
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
        for first, last, _ in _MOVES[place.utf8]:
            yield from range(first, last + 1)
        if place.is_whole:
            yield _SPECIAL

    def _step(self, place: Place, byte: int) -> Place | Found | None:
        if place.utf8 == _IN_SPECIAL:
            node, utf8 = self._next[place.node][byte], _IN_SPECIAL
        else:
            node = self._goto(place.node, byte)
            if byte == _SPECIAL and node == ROOT:
                return None
            utf8 = _IN_SPECIAL if byte == _SPECIAL else self._utf8(place.utf8, byte)
        found = self._found[node]
        if found == _FORBIDDEN:
            return None
        return Place(node, utf8) if found == _NOT_FOUND else Found(found)

    def _utf8(self, utf8: int, byte: int) -> int:
        return next(after for first, last, after in _MOVES[utf8] if first <= byte <= last)

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
