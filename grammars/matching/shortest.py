"""Shortest completions in an automaton with a stack: how few bytes a configuration is away from the end, and which.

What is read between the push of a handler and its pop does not depend on what lies below it. Such a *call* is named by
the state after the push; its ways out are found once and serve every place that makes the same call. Calls are
explored together, the nearest place first, so that a way out is found at its least length (Knuth 1977, "A
generalization of Dijkstra's algorithm"; calls are his nonterminals). How near a place is counts what the source
knows to be missing at least (A*, Hart, Nilsson and Raphael 1968), and of places as near as each other the deepest
comes first, so that one of many equally short texts is found without the others: times of day have tens of thousands
of places. A call whose outcomes are all known is not explored further.

A number ends *before* the byte that follows it, which must not be one that could go on with it. Such a byte is
*blocked* at the place after the pop, so a place is a state and the states whose bytes are blocked there.

Invariant: lengths are those of the shared automaton, exactly; what a sample must not repeat is none of it.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from decoding.errors import GrammarStateError
from grammars.matching.automaton import Configuration, PushdownAutomaton
from grammars.matching.stacks import EMPTY
from grammars.matching.tables import NO_OUTCOME

MAX_PLACES = 200_000
"""Most places that one search may settle."""
MAX_KEPT = 4096
"""Most configurations whose completion is kept."""


class Place(NamedTuple):
    """A state, and states entered before it that were left without a byte: what they can read is blocked here."""

    state: int
    left: tuple[int, ...] = ()


class _Trail(NamedTuple):
    """How a place was reached: the trail before, and the bytes read since."""

    before: _Trail | None
    text: bytes

    def whole(self) -> bytes:
        pieces = []
        trail: _Trail | None = self
        while trail is not None:
            pieces.append(trail.text)
            trail = trail.before
        return b"".join(reversed(pieces))


class WayOut(NamedTuple):
    """By which outcome a call ends, what it left without a byte, and the text that leads there."""

    outcome: int
    left: tuple[int, ...]
    text: bytes


_START = _Trail(None, b"")


class _Call:
    """A place above a stack that it does not know, how far it is explored, and who waits for it."""

    __slots__ = ("callers", "outcomes", "settled", "wanted", "ways")

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.ways: list[WayOut] = []
        self.outcomes: set[int] = set()
        self.settled: dict[Place | WayOut, int] = {}
        self.callers: list[tuple[int, _Call, _Trail, int]] = []

    @property
    def is_done(self) -> bool:
        """Every outcome was found."""
        return len(self.outcomes) >= self.wanted


class Shortest:
    """Completions of one automaton's configurations."""

    def __init__(self, automaton: PushdownAutomaton) -> None:
        self._automaton = automaton
        self._is_thorough = False
        """Calls are explored further when their outcomes are known: some byte was blocked."""
        self._texts: dict[Configuration, bytes] = {}
        self._moves: dict[int, list[tuple[int, int]]] = {}
        self._forget()

    @property
    def num_places(self) -> int:
        """How many places and completions are kept."""
        return len(self._texts) + sum(len(call.settled) for call in self._calls.values())

    def text(self, configuration: Configuration) -> bytes:
        """A shortest completion. Raises GrammarStateError where finding it takes too much work."""
        text = self._texts.get(configuration)
        if text is None:
            was_thorough = self._is_thorough
            text = self._completed(configuration)
            if self._is_thorough is not was_thorough:
                self._forget()
                text = self._completed(configuration)
            if len(self._texts) >= MAX_KEPT:
                self._texts.clear()
            self._texts[configuration] = text
        return text

    def _forget(self) -> None:
        self._calls: dict[tuple[Place, int], _Call] = {}
        self._frontier: list[tuple[int, int, int, _Call, Place | WayOut, _Trail]] = []
        self._order = 0
        self._texts.clear()

    def _completed(self, configuration: Configuration) -> bytes:
        """Down the stack, level by level: the places where a level can be entered, each with its least length.

        The first round takes the first way out of every level; its length bounds how far a second one must look.
        """
        self._budget = MAX_PLACES
        bound: int | None = None
        while True:
            found = self._down(configuration, bound)
            if bound is not None or found is None:
                break
            bound = len(found)
        if found is None:
            raise GrammarStateError("the text cannot be completed")
        return found

    def _down(self, configuration: Configuration, bound: int | None) -> bytes | None:
        automaton = self._automaton
        entered: dict[Place, bytes] = {Place(configuration.state): b""}
        stack = configuration.stack
        while stack != EMPTY:
            below: dict[Place, bytes] = {}
            wanted = self._num_outcomes(automaton.stacks.handler_of[stack])
            for place, before in entered.items():
                call = self._call(place, wanted)
                self._explore(call, None if bound is None else bound - len(before))
                for way in call.ways:
                    after = Place(automaton.popped(stack, way.outcome).state, way.left)
                    self._look_for_blocks(after)
                    text = before + way.text
                    if after not in below or len(text) < len(below[after]):
                        below[after] = text
            entered, stack = below, automaton.stacks.parent_of[stack]
        ends = [text for place, text in entered.items() if automaton.final(place.state) != NO_OUTCOME]
        return min(ends, key=len, default=None)

    def _call(self, place: Place, wanted: int) -> _Call:
        call = self._calls.get((place, wanted))
        if call is None:
            call = self._calls[place, wanted] = _Call(wanted)
            self._add(0, call, place, _START)
        return call

    def _add(self, length: int, call: _Call, what: Place | WayOut, trail: _Trail) -> None:
        self._order += 1
        least = self._automaton.tables.least(what.state) if isinstance(what, Place) and not what.left else 0
        heappush(self._frontier, (length + least, -length, self._order, call, what, trail))

    def _explore(self, call: _Call, bound: int | None) -> None:
        """Until one way out of ``call`` is known, or, with a bound, all of them that are shorter."""
        frontier = self._frontier
        while frontier and not (call.is_done and not self._is_thorough):
            if bound is None and call.ways:
                return
            if bound is not None and frontier[0][0] >= bound:
                return
            _, shallowness, _, owner, what, trail = heappop(frontier)
            length = -shallowness
            if owner.is_done and not self._is_thorough:
                continue
            if owner.settled.get(what, length + 1) <= length:
                continue  # what is missing at least may grow by more than a byte, so that a shorter way can come later
            owner.settled[what] = length
            self._budget -= 1
            if not self._budget:
                raise GrammarStateError(f"no shortest completion was found within {MAX_PLACES} steps")
            if isinstance(what, Place):
                self._settle(length, owner, what, trail)
            else:
                self._leave(owner, what._replace(text=trail.whole()))

    def _settle(self, length: int, call: _Call, place: Place, trail: _Trail) -> None:
        """Add what one more byte leads to, and what comes after the calls that it makes."""
        tables = self._automaton.tables
        outcome = self._automaton.final(place.state)
        if outcome != NO_OUTCOME:
            self._add(length, call, WayOut(outcome, (*place.left, place.state), b""), trail)
        for byte, code in self._bytes(place):
            step = _Trail(trail, bytes((byte,)))
            if code > 0:
                self._add(length + 1, call, Place(code), step)
                continue
            handler, target, outcome = tables.action_of[-code]
            if not handler:
                self._add(length + 1, call, WayOut(outcome, (), b""), step)
                continue
            inner = self._call(Place(target), self._num_outcomes(handler))
            inner.callers.append((length + 1, call, step, handler))
            for way in inner.ways:
                self._return(length + 1, call, step, handler, way)

    def _leave(self, call: _Call, way: WayOut) -> None:
        call.ways.append(way)
        call.outcomes.add(way.outcome)
        for length, caller, trail, handler in call.callers:
            self._return(length, caller, trail, handler, way)

    def _return(self, length: int, caller: _Call, trail: _Trail, handler: int, way: WayOut) -> None:
        stack = self._automaton.stacks.push(handler, EMPTY)
        place = Place(self._automaton.popped(stack, way.outcome).state, way.left)
        self._look_for_blocks(place)
        self._add(length + len(way.text), caller, place, _Trail(trail, way.text))

    def _look_for_blocks(self, place: Place) -> None:
        if place.left and not self._is_thorough:
            rows = self._automaton.tables.rows
            self._automaton.final(place.state)  # builds the row
            live = rows[place.state] != 0
            self._is_thorough = any(bool((live & (rows[left] != 0)).any()) for left in place.left)

    def _bytes(self, place: Place) -> list[tuple[int, int]]:
        """For each code that is live at a place, the first byte with it."""
        rows = self._automaton.tables.rows
        if place.left:
            row = rows[place.state].copy()
            for left in place.left:
                row[rows[left] != 0] = 0
            return _first_bytes(row)
        moves = self._moves.get(place.state)
        if moves is None:
            moves = self._moves[place.state] = _first_bytes(rows[place.state])
        return moves

    def _num_outcomes(self, handler: int) -> int:
        return self._automaton.tables.num_outcomes(handler)


def _first_bytes(row: np.ndarray[tuple[int], np.dtype[np.int32]]) -> list[tuple[int, int]]:
    codes, firsts = np.unique(row, return_index=True)
    return sorted((byte, code) for code, byte in zip(codes.tolist(), firsts.tolist(), strict=True) if code)
