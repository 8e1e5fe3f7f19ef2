"""Deterministic automata over bytes, built a row at a time.

Invariant: every state but DEAD can be completed to a word, so that whoever follows rows never meets a dead end, and
every word is valid UTF-8.
"""

from __future__ import annotations

from threading import RLock
from typing import Final

import numpy as np
from numpy.typing import NDArray

from decoding.errors import ConstraintError, GrammarStateError
from grammars.regular import kinds as k
from grammars.regular.byte_moves import ByteMoves, Bytes, Meaning
from grammars.regular.charset import ANY, CharSet
from grammars.regular.completion import Completions
from grammars.regular.derivatives import Derivatives
from grammars.regular.limits import DEFAULT_LIMITS, RegularLimits
from grammars.regular.liveness import Liveness
from grammars.regular.lowering import Lowering
from grammars.regular.nodes import Expression
from grammars.regular.terms import WorkExhaustedError

DEAD: Final = 0

Moves = tuple[tuple[Bytes, int], ...]
"""Index arrays of bytes (disjoint, int) and the state that each leads to (all different)."""


class Automaton:
    """The automaton of one expression. States are integers from 1; DEAD (0) is the empty language and never entered.

    Safe to share between threads. Pickling keeps the language; states are built, and numbered, anew.

    Attributes:
        start: the state before the first byte; DEAD where the language is empty.
    """

    def __init__(
        self,
        expression: Expression,
        limits: RegularLimits = DEFAULT_LIMITS,
        *,
        field: str = "expression",
        characters: CharSet = ANY,
    ) -> None:
        """See `build`. Raises ConstraintError, which names ``field``, where the expression exceeds the limits."""
        self.expression = expression
        self.limits = limits
        self.characters = characters
        self._lock = RLock()
        self._meaning: list[Meaning] = [k.EMPTY]
        self._states: dict[Meaning, int] = {k.EMPTY: DEAD}
        self._accepts = [False]
        self._moves: list[Moves | None] = [()]
        self._rows: dict[int, NDArray[np.int32]] = {}
        try:
            lowering = Lowering(expression, limits, field, characters)
            self._terms = lowering.terms
            derivatives = Derivatives(lowering.terms, lowering.machines)
            liveness = Liveness(derivatives)
            self._byte_moves = ByteMoves(derivatives, liveness)
            self.start = self._number(lowering.start) if liveness.live(lowering.start) else DEAD
        except WorkExhaustedError:
            raise ConstraintError(
                field, f"no word was found within {limits.build_work} steps of work; simplify it"
            ) from None
        self._completions = Completions(self.moves, self.accepting, self.distance_at_least)

    def __reduce__(self) -> tuple[object, tuple[Expression, RegularLimits, CharSet]]:
        """The language, its limits and its characters."""
        return _rebuilt, (self.expression, self.limits, self.characters)

    @property
    def num_states(self) -> int:
        """One more than the highest state so far."""
        return len(self._meaning)

    @property
    def is_empty(self) -> bool:
        """The language has no word."""
        return self.start == DEAD

    def accepting(self, state: int) -> bool:
        """The bytes so far are a word."""
        return self._accepts[state]

    def tags(self, state: int) -> tuple[int, ...]:
        """The labels of the `tagged` expressions that the bytes so far are a word of, in increasing order."""
        meaning = self._meaning[state]
        if not isinstance(meaning, int):
            return ()
        terms = self._terms
        members = terms.args[meaning] if terms.kind[meaning] == k.OR else (meaning,)
        return tuple(sorted(terms.args[m][0] for m in members if terms.kind[m] == k.TAG and terms.accepts(m)))

    def moves(self, state: int) -> Moves:
        """Every state that one more byte leads to, and those bytes as an array: `row` without its gaps.

        Raises:
            GrammarStateError: the moves take more work than `limits.row_work` (the automaton stays usable), or there
                are more states than `limits.max_states`.
        """
        moves = self._moves[state]
        if moves is None:
            with self._lock:
                moves = self._moves[state] = self._built(state)
        return moves

    def row(self, state: int) -> NDArray[np.int32]:
        """The successors of a state, int32 [256]; DEAD where no word goes on with that byte. Kept, and not writeable.

        Raises:
            GrammarStateError: as for `moves`.
        """
        row = self._rows.get(state)
        if row is None:
            row = np.zeros(256, np.int32)
            for members, target in self.moves(state):
                row[members] = target
            row.setflags(write=False)
            self._rows[state] = row
        return row

    def walk(self, data: bytes, state: int | None = None) -> int:
        """The state after some bytes, DEAD where no word starts with them."""
        state = self.start if state is None else state
        for byte in data:
            state = int(self.row(state)[byte])
            if state == DEAD:
                break
        return state

    def matches(self, data: bytes) -> bool:
        """The bytes are a word."""
        return self.accepting(self.walk(data))

    def distance(self, state: int) -> int:
        """Bytes of the shortest completion of a live state. Raises GrammarStateError where that is too much work."""
        with self._lock:
            return self._completions.distance(state)

    def completion(self, state: int) -> bytes:
        """A shortest completion of a live state. Raises GrammarStateError where that is too much work."""
        with self._lock:
            return self._completions.completion(state)

    def distance_at_least(self, state: int) -> int:
        """A lower bound of `distance` that takes no work."""
        meaning = self._meaning[state]
        if isinstance(meaning, int):
            return self._terms.shortest[meaning]
        block, arcs = meaning
        return block.left + min(self._terms.shortest[target] for _, target in arcs)

    def _built(self, state: int) -> Moves:
        self._terms.allowance = self.limits.row_work
        try:
            moves = self._byte_moves.moves(self._meaning[state])
        except WorkExhaustedError:
            raise GrammarStateError(
                f"one byte of a regular language took more than {self.limits.row_work} steps of work; simplify it"
            ) from None
        return tuple((members, self._number(meaning)) for members, meaning in moves)

    def _number(self, meaning: Meaning) -> int:
        state = self._states.get(meaning)
        if state is None:
            state = self.num_states
            if state >= self.limits.max_states:
                raise GrammarStateError(f"a regular language took more than {state} states; simplify it")
            self._meaning.append(meaning)
            self._accepts.append(isinstance(meaning, int) and self._terms.accepts(meaning))
            self._moves.append(None)
            self._states[meaning] = state
        return state


def build(
    expression: Expression,
    limits: RegularLimits = DEFAULT_LIMITS,
    *,
    field: str = "expression",
    characters: CharSet = ANY,
) -> Automaton:
    """The automaton of an expression.

    Its words have no characters but ``characters``: where a text may not have the others, complements do not mean them
    either. Inside a JSON string all others may come too, as escapes; ``characters`` then holds `json_escapes.SYNTAX`.

    Raises:
        ConstraintError: it exceeds the limits; the error names ``field``.
    """
    return Automaton(expression, limits, field=field, characters=characters)


def _rebuilt(expression: Expression, limits: RegularLimits, characters: CharSet) -> Automaton:
    return Automaton(expression, limits, characters=characters)
