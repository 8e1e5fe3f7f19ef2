"""How the words of two terminals meet: as equals, or one as the beginning of another.

Invariant: where an answer takes too much work it is the cautious one, that words meet in every way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from decoding.errors import GrammarStateError
from grammars.regular.automaton import Automaton

ByteSet = int
"""Bit b stands for byte b."""

ALL_BYTES: ByteSet = (1 << 256) - 1
MAX_STATE_PAIRS = 20_000
"""Pairs of states that are looked at for one pair of terminals; more get the cautious answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """What the words of an ordered pair of terminals have in common.

    Attributes:
        is_shared: some word is in both.
        extends: bytes with which a word of the second, or the beginning of one, goes on past a whole word of the first.
    """

    is_shared: bool
    extends: ByteSet


_CAUTIOUS = Meeting(is_shared=True, extends=ALL_BYTES)


class Overlaps:
    """Answers about pairs of terminals, each computed once; terminals are numbered as their automata are given."""

    def __init__(self, automata: Sequence[Automaton]) -> None:
        self._automata = automata
        self._steps: list[dict[int, tuple[tuple[ByteSet, int], ...]]] = [{} for _ in automata]
        self._meetings: dict[tuple[int, int], Meeting] = {}

    def first_bytes(self, terminal: int) -> ByteSet:
        """Bytes that a word of the terminal starts with."""
        return self._alive(terminal, self._automata[terminal].start)

    def meeting(self, one: int, other: int) -> Meeting:
        """How words of ``one`` meet words of ``other``."""
        found = self._meetings.get((one, other))
        if found is None:
            try:
                found = self._met(one, other)
            except GrammarStateError:  # too many states, or too much work for one
                found = _CAUTIOUS
            self._meetings[one, other] = found
        return found

    def _met(self, one: int, other: int) -> Meeting:
        left, right = self._automata[one], self._automata[other]
        pending = [(left.start, right.start)]
        seen = set(pending)
        is_shared, extends = False, 0
        while pending:
            pair = pending.pop()
            if left.accepting(pair[0]):
                is_shared |= right.accepting(pair[1])
                extends |= self._alive(other, pair[1])
            for left_bytes, left_after in self._moves(one, pair[0]):
                for right_bytes, right_after in self._moves(other, pair[1]):
                    after = (left_after, right_after)
                    if left_bytes & right_bytes and after not in seen:
                        seen.add(after)
                        pending.append(after)
            if len(seen) > MAX_STATE_PAIRS:
                return _CAUTIOUS
        return Meeting(is_shared=is_shared, extends=extends)

    def _alive(self, terminal: int, state: int) -> ByteSet:
        alive = 0
        for members, _ in self._moves(terminal, state):
            alive |= members
        return alive

    def _moves(self, terminal: int, state: int) -> tuple[tuple[ByteSet, int], ...]:
        known = self._steps[terminal]
        if state not in known:
            known[state] = tuple(
                (sum(1 << int(byte) for byte in members), after)
                for members, after in self._automata[terminal].moves(state)
            )
        return known[state]
