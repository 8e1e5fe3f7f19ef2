"""How the words of two terminals meet: as equals, or one as the beginning of another.

Invariant: answers are exact, and the work for all of them together is bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from decoding.errors import GrammarStateError
from grammars.regular.automaton import Automaton

ByteSet = int
"""Bit b stands for byte b."""

MAX_WORK = 1_000_000
"""Pairs of moves that are looked at, and NEW_STATE for every state that is built."""
NEW_STATE = 100


class TooMuchWorkError(Exception):
    """A question about terminals takes more work than is worth it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """What the words of an ordered pair of terminals have in common.

    Attributes:
        is_shared: some word is in both.
        extends: bytes with which a word of the second, or the beginning of one, goes on past a whole word of the first.
    """

    is_shared: bool
    extends: ByteSet


class Overlaps:
    """Answers about pairs of terminals, each computed once; terminals are numbered as their automata are given.

    All methods raise TooMuchWorkError.
    """

    def __init__(self, automata: Sequence[Automaton]) -> None:
        self._automata = automata
        self._steps: list[dict[int, tuple[tuple[ByteSet, int], ...]]] = [{} for _ in automata]
        self._meetings: dict[tuple[int, int], Meeting] = {}
        self._work_left = MAX_WORK

    def first_bytes(self, terminal: int) -> ByteSet:
        """Bytes that a word of the terminal starts with."""
        return self._alive(terminal, self._automata[terminal].start)

    def meeting(self, one: int, other: int) -> Meeting:
        """How words of ``one`` meet words of ``other``."""
        found = self._meetings.get((one, other))
        if found is None:
            found = self._meetings[one, other] = self._met(one, other)
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
            left_moves, right_moves = self._moves(one, pair[0]), self._moves(other, pair[1])
            self._spend(1 + len(left_moves) * len(right_moves))
            for left_bytes, left_after in left_moves:
                for right_bytes, right_after in right_moves:
                    after = (left_after, right_after)
                    if left_bytes & right_bytes and after not in seen:
                        seen.add(after)
                        pending.append(after)
        return Meeting(is_shared=is_shared, extends=extends)

    def _alive(self, terminal: int, state: int) -> ByteSet:
        alive = 0
        for members, _ in self._moves(terminal, state):
            alive |= members
        return alive

    def _moves(self, terminal: int, state: int) -> tuple[tuple[ByteSet, int], ...]:
        known = self._steps[terminal]
        if state not in known:
            self._spend(NEW_STATE)
            try:
                moves = self._automata[terminal].moves(state)
            except GrammarStateError as error:  # too many states, or too much work for one
                raise TooMuchWorkError from error
            known[state] = tuple((sum(1 << int(byte) for byte in members), after) for members, after in moves)
        return known[state]

    def _spend(self, work: int) -> None:
        self._work_left -= work
        if self._work_left < 0:
            raise TooMuchWorkError
