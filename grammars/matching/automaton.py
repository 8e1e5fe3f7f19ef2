"""One grammar's automaton at work: tables grown on demand, steps and masks per configuration, bounded work.

Invariant: a row depends on the configuration alone, so that every request with the grammar shares it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from decoding.errors import GrammarStateError
from grammars.matching.memory import Event
from grammars.matching.stacks import EMPTY, Stacks
from grammars.matching.tables import NO_OUTCOME, UNRESOLVED, Source, Tables
from grammars.matching.trie import TokenTrie
from grammars.matching.walk import DEAD, EVENT_FIELDS, MISS_FIELDS, MISSING_ROW, follow, walk

MAX_DEPTH = 1000
"""Most handlers on a stack: how deeply a text may nest."""
MAX_EXPANSIONS = 100_000
"""Most states and outcomes built for one mask or one advance."""


class Configuration(NamedTuple):
    """A state and a stack."""

    state: int
    stack: int


class Step(NamedTuple):
    """What some bytes led to: the configuration, the events on the way, and new names for scratch stacks in them."""

    configuration: Configuration
    events: list[Event]
    interned: dict[int, int]


class PushdownAutomaton:
    """Steps and trie walks over a `Source`, all lazily."""

    def __init__(self, source: Source, trie: TokenTrie) -> None:
        self.trie = trie
        self.tables = Tables()
        self.stacks = Stacks()
        self._source = source
        state, bottom = source.start(self.tables)
        self.start = Configuration(state, self.stacks.push(bottom, EMPTY))
        levels = trie.max_depth + 1
        self._path = tuple(np.zeros(levels, dtype=np.int32) for _ in range(4))
        self._misses = np.zeros((1024, MISS_FIELDS), dtype=np.int32)
        self._events = np.zeros((3 * levels + 2, EVENT_FIELDS), dtype=np.int32)
        self._trie_arrays = (trie.byte_N, trie.depth_N, trie.skip_N, trie.first_N, trie.tokens)

    def is_accepting(self, configuration: Configuration) -> bool:
        """Whether the text may end here."""
        state, stack = configuration
        while stack != EMPTY:
            outcome = self._final(state)
            if outcome == NO_OUTCOME:
                return False
            state = self._resolve(int(self.stacks.handlers[stack]), outcome)
            stack = int(self.stacks.parents[stack])
        return self._final(state) != NO_OUTCOME

    def follow(self, configuration: Configuration, text: bytes) -> Step | None:
        """What the bytes ``text`` lead to; None where they are illegal."""
        state, stack = configuration
        position, top = 0, self.stacks.count
        read = np.frombuffer(text, dtype=np.uint8)
        if 3 * len(text) + 2 > len(self._events):
            self._events = np.zeros((3 * len(text) + 2, EVENT_FIELDS), dtype=np.int32)
        self._events[0, 0] = 0
        for _ in range(MAX_EXPANSIONS):
            while top + len(text) >= len(self.stacks.handlers):
                self.stacks.grow()
            status, position, state, stack, top, a, b = follow(
                read, position, state, stack, top, self._table_arrays(), self._stack_arrays(), self._events
            )
            if status == 1:
                events: list[Event] = self._events[1 : self._events[0, 0] + 1].tolist()
                interned = self.stacks.adopt(stack)
                stack = interned.get(stack, stack)
                if self.stacks.depth(stack) > MAX_DEPTH:
                    raise GrammarStateError(f"the text nests more than {MAX_DEPTH} levels deep")
                return Step(Configuration(state, stack), events, interned)
            if status == DEAD:
                return None
            self._supply(a, b)
        raise GrammarStateError(f"one token needed more than {MAX_EXPANSIONS} new states")

    def live_bytes(self, configuration: Configuration) -> list[int]:
        """The bytes that may come next, ascending."""
        state, stack = configuration
        live = self.row(state) != 0
        while stack != EMPTY and (outcome := self._final(state)) != NO_OUTCOME:
            state = self._resolve(int(self.stacks.handlers[stack]), outcome)
            stack = int(self.stacks.parents[stack])
            live |= self.row(state) != 0
        return np.flatnonzero(live).tolist()

    def mark(self, configuration: Configuration, legal: npt.NDArray[np.uint8]) -> None:
        """Mark the ids of live tokens in ``legal`` as `walk` says. Raises GrammarStateError past the bound of work."""
        while not self._marked(configuration, legal):
            self.stacks.grow()
            self._misses = np.zeros((2 * len(self._misses), MISS_FIELDS), dtype=np.int32)

    def count_words(self, state: int, limit: int) -> int:
        """How many remembered words end at or after ``state``, by counting up to ``limit + 1``; a key with a name of
        its own, or a choice without end, counts as more.
        """
        return _Counting(self, limit).from_state(state)

    def row(self, state: int) -> npt.NDArray[np.int32]:
        """The codes of a state."""
        self._final(state)
        row: npt.NDArray[np.int32] = self.tables.rows[state]
        return row

    def _marked(self, configuration: Configuration, legal: npt.NDArray[np.uint8]) -> bool:
        """Walk the trie, asking the source for what is missing; False where the walk needs more room."""
        pending = [(0, len(self.trie), *configuration, 0)]
        interned = top = self.stacks.count
        work = 0
        while pending:
            top, count = walk(
                *pending.pop(), top, interned, self._trie_arrays, self._table_arrays(), self._stack_arrays(),
                self._path, legal, self._misses, self._events,
            )  # fmt: skip
            if top < 0:
                return False
            for begin, end, state, stack, subject, outcome, word in self._misses[:count].tolist():
                self._supply(subject, outcome)
                pending.append((begin, end, state, stack, word))
            work += count
            if work > MAX_EXPANSIONS:
                raise GrammarStateError(f"one mask needed more than {MAX_EXPANSIONS} new states")
        return True

    def _final(self, state: int) -> int:
        if not self.tables.expanded[state]:
            self._source.expand(self.tables, state)
        return int(self.tables.final[state])

    def _supply(self, subject: int, outcome: int) -> None:
        if outcome == MISSING_ROW:
            self._final(subject)
        else:
            self._resolve(subject, outcome)

    def _resolve(self, handler: int, outcome: int) -> int:
        index = int(self.tables.first_out[handler]) + outcome
        if self.tables.resolved[index] == UNRESOLVED:
            entered = self._source.resolve(self.tables, handler, outcome)
            self.tables.resolved[index] = entered
        return int(self.tables.resolved[index])

    def _table_arrays(self) -> tuple[npt.NDArray[np.generic], ...]:
        tables = self.tables
        return (
            tables.rows, tables.expanded, tables.final, tables.actions,
            tables.first_out, tables.resolved, tables.remembered,
        )  # fmt: skip

    def _stack_arrays(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        return (self.stacks.handlers, self.stacks.parents)


class _Counting:
    """Counts the words from a state, depth first."""

    def __init__(self, automaton: PushdownAutomaton, limit: int) -> None:
        self._automaton = automaton
        self._limit = limit
        self._open: set[int] = set()
        self._known: dict[int, int] = {}

    def from_state(self, state: int) -> int:
        """At most ``limit + 1``."""
        if state in self._open:
            return self._limit + 1
        known = self._known.get(state)
        if known is not None:
            return known
        self._open.add(state)
        total = 0
        codes, counts = np.unique(self._automaton.row(state), return_counts=True)
        for code, count in zip(codes.tolist(), counts.tolist(), strict=True):
            if code < 0:
                total += count
            elif code > 0:
                total += count * self.from_state(code)
            if total > self._limit:
                break
        self._open.discard(state)
        self._known[state] = min(total, self._limit + 1)
        return self._known[state]
