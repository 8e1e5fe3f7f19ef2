"""The growing tables of a lazily built automaton with a stack, as the compiled walker reads them.

A *state* has a row of 256 codes, one per byte:

    0         dead
    s > 0     go to state s
    -a < 0    action a: *push* a handler and go to a state, or *exit* with an outcome (the byte is consumed)

A *handler* on the stack says where an exit leads: ``resolved[handlers[handler, 0] + outcome]`` is the state entered
after popping it. A state may also have a `final` outcome: a byte that is dead in its row then first exits with that
outcome and is read by the state entered (numbers end that way). Whatever is not known yet is asked of a `Source`.

Invariant: every live code leads to a state from which some text can be completed; states, actions and handlers are
only ever added, so that numbers stay valid.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from grammars.matching.hints import Hint, Shared

ScalarT = TypeVar("ScalarT", bound=np.generic)

DEAD = 0
NO_OUTCOME = -1
UNBUILT = -2
"""The final outcome of a state whose row is not there yet."""
UNRESOLVED = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembering:
    """How the words read above a handler, from its push to its pop, are remembered.

    No word that is remembered may be read twice above the same stack.

    Attributes:
        outcomes: words are remembered at a pop with one of so many first outcomes.
        closing: the byte that ends such words, where every beginning of one, whatever was read before, can go on to a
        new
            word (they are *endless*); None where that is not sure.
        is_value: words are JSON values from the pushing byte on; else they begin after it.
        is_space: nothing is remembered, and what is read above the handler does not count in words around it.
    """

    outcomes: int = 0
    closing: bytes | None = None
    is_value: bool = False
    is_space: bool = False


NOTHING_REMEMBERED = Remembering()


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How many tokens of one run of text may end in a state such as this one.

    How many there were is a matter of each sample and no part of the state, which many samples share.

    Attributes:
        run: which run of text the state belongs to; a token that ends in another run, or in none, resets the count.
        most: where so many tokens of the run were read, the sample goes on in another state.
        closing: that other state; it reads a part of what this one reads and leads out of the run.
    """

    run: Hashable
    most: int
    closing: int


class Source(Protocol):
    """Where states come from: builds a part of the tables when the walker first needs it. Deterministic and
    picklable.
    """

    def start(self, tables: Tables) -> tuple[int, int]:
        """The state at the start of the text, and the handler at the bottom of its stack."""
        ...

    def expand(self, tables: Tables, state: int) -> None:
        """Call `Tables.set_row` for ``state``."""
        ...

    def resolve(self, tables: Tables, handler: int, outcome: int) -> int:
        """The state after ``handler`` is popped with ``outcome``."""
        ...


class Tables:
    """Rows, actions and handlers, each numbered from 1 (0 is dead, no action, no handler)."""

    def __init__(self) -> None:
        self.rows: npt.NDArray[np.int32] = np.zeros((64, 256), dtype=np.int32)
        self.final: npt.NDArray[np.int32] = np.full(64, UNBUILT, dtype=np.int32)
        self.num_states = 1
        self.actions: npt.NDArray[np.int32] = np.zeros(
            (64, 3), dtype=np.int32
        )  # pushed handler or 0, target state, outcome
        self.num_actions = 1
        self.handlers: npt.NDArray[np.int32] = np.zeros(
            (64, 3), dtype=np.int32
        )  # first place in resolved, remembered outcomes, is careful
        self.num_handlers = 1
        self.resolved: npt.NDArray[np.int32] = np.full(256, UNRESOLVED, dtype=np.int32)
        self.flat = _flat(self.rows)
        """The rows one after another, for reading single codes from Python: ``flat[state << 8 | byte]``."""
        self.action_of: list[tuple[int, int, int]] = [(0, 0, 0)]
        """The actions, for reading single ones from Python."""
        self.first_out_of = [0]
        """Each handler's first place in `resolved`, for the same."""
        self.remembering_of = [NOTHING_REMEMBERED]
        """How each handler's words are remembered."""
        self.hint_of: Callable[[int], Hint | None] | None = None
        """Where the source sets it, what it can tell of a state that is in no block."""
        self.least_of: Callable[[int], int] | None = None
        """Where the source sets it, so many bytes at least come between a state and the end or the pop at its level."""
        self.shallow_of: Callable[[int], int] | None = None
        """Where the source sets it, the state that takes a state's place in a text that nests very deeply."""
        self._shallow: dict[int, int] = {}
        self.budget_of: Callable[[int], Budget | None] | None = None
        """Where the source sets it, the budget of the text that a state is part of."""
        self._blocks: list[tuple[int, int, Hashable]] = []
        self._num_resolved = 0
        self._action_ids: dict[tuple[int, int, int], int] = {}

    @property
    def arrays(self) -> tuple[npt.NDArray[np.generic], ...]:
        """The arrays as `walk` takes them. They are replaced by larger ones as the tables grow."""
        return (self.rows, self.final, self.actions, self.handlers, self.resolved)

    @property
    def num_bytes(self) -> int:
        """Memory of the tables."""
        return sum(array.nbytes for array in self.arrays)

    def add_state(self) -> int:
        """A new state without a row."""
        state = self.num_states
        if state == len(self.rows):
            self._grow_states()
        self.num_states += 1
        return state

    def is_built(self, state: int) -> bool:
        """Whether a state has its row."""
        return bool(self.final[state] != UNBUILT)

    def set_row(self, state: int, codes: Iterable[tuple[int, int]], final: int = NO_OUTCOME) -> None:
        """Give ``state`` its row as (byte, code) pairs, the rest being dead."""
        row = self.rows[state]
        for byte, code in codes:
            row[byte] = code
        self.final[state] = final

    def set_dense_row(self, state: int, row: npt.NDArray[np.int32], final: int = NO_OUTCOME) -> None:
        """The same from an int32 [256] array."""
        self.rows[state] = row
        self.final[state] = final

    def least(self, state: int) -> int:
        """A lower bound of the bytes from ``state`` to the end of the text, or to what pops the handler below it."""
        return 0 if self.least_of is None else self.least_of(state)

    def hint(self, state: int) -> Hint | None:
        """What the source tells of a state."""
        for first, last, key in self._blocks:
            if first <= state < last:
                return Shared(key=(key, state - first))
        return None if self.hint_of is None else self.hint_of(state)

    def shallow(self, state: int) -> int:
        """The state that takes the place of ``state`` in a text that nests very deeply; often itself."""
        if self.shallow_of is None:
            return state
        twin = self._shallow.get(state)
        if twin is None:
            twin = self._shallow[state] = self.shallow_of(state)
            self._shallow[twin] = twin
        return twin

    def add_chain(self, text: bytes, code: int) -> int:
        """New states that read ``text`` and nothing else, with ``code`` at its last byte; the first one's number."""
        first = self.num_states
        while first + len(text) > len(self.rows):
            self._grow_states()
        self.num_states = last = first + len(text)
        self.final[first:last] = NO_OUTCOME
        if text:
            places = np.arange(first, last)
            self.rows[places, np.frombuffer(text, dtype=np.uint8)] = np.append(places[1:], code)
        return first

    def add_run(self, state: int, row: npt.NDArray[np.int32], text: bytes) -> int:
        """New states, one for each byte of ``text``, that it leads through from ``state``; the first one's number.

        They and ``state`` get the row ``row`` for all other bytes, except for the last one, which has none yet.
        """
        first = self.num_states
        while first + len(text) > len(self.rows):
            self._grow_states()
        self.num_states = last = first + len(text)
        places = np.arange(first - 1, last - 1)
        places[0] = state
        self.rows[places] = row
        self.rows[places, np.frombuffer(text, dtype=np.uint8)] = np.arange(first, last)
        self.final[places] = NO_OUTCOME
        return first

    def add_block(self, rows: npt.NDArray[np.int32], final: npt.NDArray[np.int32], key: Hashable) -> int:
        """New states with all their rows, whose positive codes count from 1 within the block; the first one's number.

        Blocks with one ``key`` are equal in every grammar.
        """
        first = self.num_states
        while first + len(rows) > len(self.rows):
            self._grow_states()
        last = first + len(rows)
        self.rows[first:last] = np.where(rows > 0, rows + (first - 1), rows)
        self.final[first:last] = final
        self.num_states = last
        self._blocks.append((first, last, key))
        return first

    def push(self, handler: int, target: int) -> int:
        """The code for: push ``handler``, go to ``target``."""
        return -self._action(handler, target, 0)

    def push_each(self, handler: int, targets: tuple[int, ...]) -> int:
        """`push` of a handler that was never pushed before, to each of ``targets``: the first one's code, from which
        the others count down.
        """
        first = self.num_actions
        last = self.num_actions = first + len(targets)
        while last > len(self.actions):
            self.actions = _grown(self.actions, 0)
        self.actions[first:last, 0] = handler
        self.actions[first:last, 1] = targets
        self.action_of += [(handler, target, 0) for target in targets]
        return -first

    def exit(self, outcome: int) -> int:
        """The code for: consume the byte and exit with ``outcome``."""
        return -self._action(0, 0, outcome)

    def add_handler(self, num_outcomes: int, remembering: Remembering = NOTHING_REMEMBERED) -> int:
        """A new handler for outcomes ``0 .. num_outcomes - 1``."""
        handler = self.num_handlers
        if handler == len(self.handlers):
            self.handlers = _grown(self.handlers, 0)
        is_careful = remembering.outcomes > 0 and remembering.closing is None
        self.handlers[handler] = self._num_resolved, remembering.outcomes, is_careful
        self.first_out_of.append(self._num_resolved)
        self.remembering_of.append(remembering)
        self.num_handlers += 1
        self._num_resolved += num_outcomes
        while self._num_resolved > len(self.resolved):
            self.resolved = _grown(self.resolved, UNRESOLVED)
        return handler

    def num_outcomes(self, handler: int) -> int:
        """With how many outcomes a handler can be popped."""
        is_last = handler == self.num_handlers - 1
        end = self._num_resolved if is_last else self.first_out_of[handler + 1]
        return end - self.first_out_of[handler]

    def _grow_states(self) -> None:
        self.rows = _grown(self.rows, 0)
        self.flat = _flat(self.rows)
        self.final = _grown(self.final, UNBUILT)

    def _action(self, handler: int, target: int, outcome: int) -> int:
        key = (handler, target, outcome)
        action = self._action_ids.get(key)
        if action is None:
            action = self._action_ids[key] = self.num_actions
            if action == len(self.actions):
                self.actions = _grown(self.actions, 0)
            self.actions[action] = key
            self.action_of.append(key)
            self.num_actions += 1
        return action


def _flat(rows: npt.NDArray[np.int32]) -> memoryview:
    return rows.data.cast("B").cast("i")


def _grown(array: npt.NDArray[ScalarT], fill: int) -> npt.NDArray[ScalarT]:
    larger = np.zeros((2 * len(array), *array.shape[1:]), dtype=array.dtype)  # takes no memory until it is written
    larger[: len(array)] = array
    if fill:
        larger[len(array) :] = fill
    return larger
