"""Deterministic automata over bytes, built a row at a time.

A state is a term (between two characters) or a place inside a UTF-8 sequence. Invariant: every state but DEAD can be completed
to a word, so that whoever follows rows never meets a dead end, and every word is valid UTF-8.
"""

from __future__ import annotations

from threading import RLock

import numpy as np
from numpy.typing import NDArray

from decoding.errors import ConstraintError, GrammarStateError
from grammars.regular import kinds as k
from grammars.regular.completion import Completions
from grammars.regular.derivatives import Derivatives
from grammars.regular.limits import DEFAULT_LIMITS, RegularLimits
from grammars.regular.liveness import Liveness
from grammars.regular.lowering import Lowering
from grammars.regular.nodes import Expression
from grammars.regular.terms import WorkExhaustedError
from grammars.regular.utf8 import leads

DEAD = 0
UNBUILT = -1

Arcs = tuple[tuple[int, int], ...]
Place = tuple[int, int, int, int, Arcs]
"""Inside a character: bytes left, base code point, range of the next byte, and (guard, term) pairs."""


class Automaton:
    """The automaton of one expression. States are integers from 1; DEAD (0) is the empty language and is never entered.

    ``table`` (int32 [capacity, 256]) and ``accepts`` (bool [capacity]) are there for compiled walkers: the first element of a row
    that is not built yet is UNBUILT (-1), so are all others. Both arrays are replaced by larger ones when states are added, so
    fetch them again after every call of `row`. Safe to share between threads.
    """

    def __init__(self, expression: Expression, limits: RegularLimits = DEFAULT_LIMITS) -> None:
        """Raises ConstraintError where the expression exceeds the limits."""
        self.expression = expression
        self.limits = limits
        self.table: NDArray[np.int32] = np.full((16, 256), UNBUILT, np.int32)
        self.accepts: NDArray[np.bool_] = np.zeros(16, np.bool_)
        self.table[DEAD] = DEAD
        self.num_states = 1
        self._lock = RLock()
        self._completions = Completions(self.row, self.accepting, self._bound)
        self._meaning: list[int | Place] = [k.EMPTY]
        self._states: dict[int | Place, int] = {k.EMPTY: DEAD}
        try:
            lowering = Lowering(expression, limits)
            self._terms = lowering.terms
            self._derivatives = Derivatives(lowering.terms, lowering.machines)
            self._liveness = Liveness(self._derivatives)
            self._alphabet = lowering.terms.alphabet
            self._leads = leads(self._alphabet)
            self._beyond_ascii = self._alphabet.within(128, 0x10FFFF)
            self.start = self._state(lowering.start) if self._liveness.live(lowering.start) else DEAD
        except WorkExhaustedError:
            raise ConstraintError(
                "expression", f"no word was found within {limits.build_work} steps of work; simplify it"
            ) from None

    def __reduce__(self) -> tuple[type[Automaton], tuple[Expression, RegularLimits]]:
        """Pickle the language; states are built, and numbered, anew."""
        return Automaton, (self.expression, self.limits)

    @property
    def is_empty(self) -> bool:
        """The language has no word."""
        return self.start == DEAD

    def accepting(self, state: int) -> bool:
        """The bytes so far are a word."""
        return bool(self.accepts[state])

    def tags(self, state: int) -> tuple[int, ...]:
        """The labels of the `tagged` expressions that the bytes so far are a word of, in increasing order."""
        meaning = self._meaning[state]
        if not isinstance(meaning, int):
            return ()
        terms = self._terms
        members = terms.args[meaning] if terms.kind[meaning] == k.OR else (meaning,)
        return tuple(sorted(terms.args[m][0] for m in members if terms.kind[m] == k.TAG and terms.accepts(m)))

    def row(self, state: int) -> NDArray[np.int32]:
        """The successors of a state, int32 [256]; DEAD where no word goes on with that byte. Do not write to it.

        Raises:
            GrammarStateError: the row takes more work than `limits.row_work` (the automaton stays usable), or there are more
                states than `limits.max_states`.
        """
        row: NDArray[np.int32] = self.table[state]
        if row[0] != UNBUILT:
            return row
        with self._lock:
            if self.table[state, 0] == UNBUILT:
                self._build(state)
            built: NDArray[np.int32] = self.table[state]
            return built

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
        """Bytes of the shortest completion of a state but DEAD. Raises GrammarStateError where that takes too much work."""
        with self._lock:
            return self._completions.distance(state)

    def completion(self, state: int) -> bytes:
        """A shortest completion of a state but DEAD. Raises GrammarStateError where that takes too much work."""
        with self._lock:
            return self._completions.completion(state)

    def _bound(self, state: int) -> int:
        meaning = self._meaning[state]
        if isinstance(meaning, int):
            return self._terms.shortest[meaning]
        left, _, _, _, arcs = meaning
        return left + min(self._terms.shortest[target] for _, target in arcs)

    def _build(self, state: int) -> None:
        self._terms.allowance = self.limits.row_work
        meaning = self._meaning[state]
        row = np.zeros(256, np.int32)
        try:
            if isinstance(meaning, int):
                self._fill_between(row, meaning)
            else:
                self._fill_inside(row, meaning)
        except WorkExhaustedError:
            raise GrammarStateError(
                f"one step of a regular expression took more than {self.limits.row_work} steps of work; simplify it"
            ) from None
        self.table[state] = row

    def _fill_between(self, row: NDArray[np.int32], term: int) -> None:
        arcs = [(guard, target) for guard, target in self._derivatives.step(term) if self._liveness.live(target)]
        multibyte = []
        for guard, target in arcs:
            row[self._alphabet.ascii_bytes(guard)] = self._state(target)
            if guard & self._beyond_ascii:
                multibyte.append((guard, target))
        if multibyte:
            for lead in self._leads:
                place = self._place(lead.left, lead.base, lead.first, lead.last, lead.guard, multibyte)
                if place is not None:
                    row[lead.bytes] = self._state(place)

    def _fill_inside(self, row: NDArray[np.int32], place: Place) -> None:
        left, base, first, last, arcs = place
        size = 64 ** (left - 1)
        if len(arcs) == 1 and arcs[0][0] == 0:
            target = arcs[0][1] if left == 1 else (left - 1, 0, 0x80, 0xBF, arcs)
            row[first : last + 1] = self._state(target)
            return
        for byte in range(first, last + 1):
            block = base + (byte - 0x80) * size
            inside = self._alphabet.within(block, block + size - 1)
            if left == 1:
                row[byte] = next((self._state(target) for guard, target in arcs if guard & inside), DEAD)
            else:
                below = self._place(left - 1, block, 0x80, 0xBF, inside, arcs)
                row[byte] = DEAD if below is None else self._state(below)

    def _place(
        self, left: int, base: int, first: int, last: int, inside: int, arcs: list[tuple[int, int]] | Arcs
    ) -> Place | None:
        """A place inside a character; where all its code points lead to one term, the guard 0 stands for all of them."""
        kept = tuple((guard & inside, target) for guard, target in arcs if guard & inside)
        if not kept:
            return None
        if len(kept) == 1 and kept[0][0] == inside:
            return left, 0, first, last, ((0, kept[0][1]),)
        return left, base, first, last, kept

    def _state(self, meaning: int | Place) -> int:
        state = self._states.get(meaning)
        if state is None:
            state = self.num_states
            if state >= self.limits.max_states:
                raise GrammarStateError(f"a regular expression needs more than {state} states; simplify it")
            if state == len(self.accepts):
                self._grow()
            self._meaning.append(meaning)
            self._states[meaning] = state
            self.accepts[state] = isinstance(meaning, int) and self._terms.accepts(meaning)
            self.num_states += 1
        return state

    def _grow(self) -> None:
        table = np.full((2 * len(self.table), 256), UNBUILT, np.int32)
        table[: len(self.table)] = self.table
        accepts = np.zeros(len(table), np.bool_)
        accepts[: len(self.accepts)] = self.accepts
        self.table, self.accepts = table, accepts


def build(expression: Expression, limits: RegularLimits = DEFAULT_LIMITS) -> Automaton:
    """The automaton of an expression.

    Raises:
        ConstraintError: it exceeds the limits.
    """
    return Automaton(expression, limits)
