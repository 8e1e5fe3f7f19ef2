"""Texts that complete a sample, with what it must not repeat.

The shortest completion of the shared automaton may repeat a key or an item. Then it is followed as far as it goes, the
word that comes again is replaced by the shortest other one, and so on to the end.

Invariant: a text that is found is legal from its position on and ends in an accepting one; where nothing is remembered
it is as short as can be.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from grammars.matching.automaton import PushdownAutomaton
from grammars.matching.memory import Event, Happening, Partial, Reading
from grammars.matching.positions import Position, Positions
from grammars.matching.shortest import Shortest

MAX_WORDS = 500
"""Most words that one completion may replace."""
MAX_TRIED = 2000
"""Most places that the search for one other word may look at."""


class Witnesses:
    """Completions of positions over one automaton."""

    def __init__(self, automaton: PushdownAutomaton, shortest: Shortest, positions: Positions) -> None:
        self._automaton = automaton
        self._shortest = shortest
        self._read = positions.read

    def text(self, position: Position) -> bytes | None:
        """A completion; None where none was found."""
        done = b""
        for _ in range(MAX_WORDS):
            text = self._shortest.text(position.configuration)
            if self._read(position, text) is not None:
                return done + text
            found = self._past_repeat(position, text)
            if found is None:
                return None
            piece, position = found
            done += piece
        return None

    def _past_repeat(self, start: Position, text: bytes) -> tuple[bytes, Position] | None:
        """The text and the position after the word that ``text`` would repeat, another one in its place."""
        path = [start]
        for byte in text:
            after = self._read(path[-1], bytes((byte,)))
            if after is None:
                break
            path.append(after)
        first = len(path) - 1
        word = _begun(path[-1])
        if word is None:
            word = self._about_to_begin(path[-1], text[first])
        else:
            while first > 0 and _holds(path[first], word):
                first -= 1
        if word is None:
            return None
        found = self._other_word(path[first], word)
        return None if found is None else (text[:first] + found[0], found[1])

    def _about_to_begin(self, position: Position, byte: int) -> Partial | None:
        """The word that begins with a byte that the memory forbids."""
        events: list[Event] = []
        self._automaton.read(position.configuration, bytes((byte,)), events)
        begun = [event for event in events if event.kind is Happening.PUSHED]
        return Partial(begun[-1].node, begun[-1].parent, b"", Reading.RAW) if begun else None

    def _other_word(self, start: Position, word: Partial) -> tuple[bytes, Position] | None:
        """The nearest position at which the word has ended: best first by what it takes to the end from there."""
        most = len(start.memory.words_above(word.parent)) + 2
        frontier = [(0, 0, b"", start, _holds(start, word))]
        seen = {(start.configuration, start.memory)}
        for _ in range(MAX_TRIED):
            if not frontier:
                return None
            _, _, text, position, has_begun = heappop(frontier)
            if has_begun and not _holds(position, word):
                return text, position
            for byte in self._different_bytes(position, most):
                after = self._read(position, bytes((byte,)))
                if after is None or (after.configuration, after.memory) in seen:
                    continue
                seen.add((after.configuration, after.memory))
                estimate = len(text) + 1 + len(self._shortest.text(after.configuration))
                begun = has_begun or _holds(after, word)
                heappush(frontier, (estimate, -len(seen), text + bytes((byte,)), after, begun))
        return None

    def _different_bytes(self, position: Position, most: int) -> Iterator[int]:
        """The live bytes, at most so many of those that lead to one state."""
        flat, state = self._automaton.tables.flat, position.configuration.state
        counts: dict[int, int] = {}
        for byte in self._automaton.live_bytes(position.configuration):
            code = flat[state << 8 | byte]
            counts[code] = counts.get(code, 0) + 1
            if code == 0 or counts[code] <= most:
                yield byte


def _begun(position: Position) -> Partial | None:
    partials = position.memory.partials
    return partials[-1] if partials else None


def _holds(position: Position, word: Partial) -> bool:
    return any(partial.node == word.node and partial.parent == word.parent for partial in position.memory.partials)
