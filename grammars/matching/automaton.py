"""One grammar's automaton at work: tables grown on demand, single steps and walks over the token trie, bounded work.

Invariant: what is live after a configuration depends on the configuration alone, so that every request shares it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from decoding.errors import GrammarStateError
from grammars.matching.memory import Event, Happening
from grammars.matching.stacks import EMPTY, Stacks
from grammars.matching.tables import NO_OUTCOME, UNBUILT, UNRESOLVED, Budget, Remembering, Source, Tables
from grammars.matching.trie import TokenTrie
from grammars.matching.walk import BASE, MISSING_ROW, NUM_COUNTS, RANGE_FIELDS, Bits, Ints, walk

MAX_DEPTH = 1000
"""Most handlers on a stack: how deeply a text may nest."""
DEEP = 600
"""From so many handlers on, texts are led to their end; see `Tables.shallow`. What is left up to `MAX_DEPTH` is for the
levels that shallow states may add, and for those that single tokens open before they are looked at."""
MAX_EXPANSIONS = 100_000
"""Most states and outcomes built for one mask."""


class Configuration(NamedTuple):
    """A state and a stack."""

    state: int
    stack: int


class Live(NamedTuple):
    """What a walk found.

    Attributes:
        exits: the ranges that go on below the base (`walk.RANGE_FIELDS` columns).
        whole: tokens that hold a whole remembered word.
    """

    exits: Ints
    whole: tuple[int, ...]


class PushdownAutomaton:
    """Steps and trie walks over a `Source`, all lazily."""

    def __init__(self, source: Source, trie: TokenTrie) -> None:
        self.trie = trie
        self.tables = Tables()
        self.stacks = Stacks()
        self._source = source
        state, bottom = source.start(self.tables)
        self.start = Configuration(state, self.stacks.push(bottom, EMPTY))
        self.careful_stacks: set[int] = set()
        """Stacks above which words were read that may run out."""
        levels = trie.max_depth + 1
        self.path = np.zeros((levels, 4), dtype=np.int32)
        self._misses = np.zeros((1024, RANGE_FIELDS), dtype=np.int32)
        self._exits = np.zeros((1024, RANGE_FIELDS), dtype=np.int32)
        self._whole = np.zeros(1024, dtype=np.int32)
        self._counts = np.zeros(NUM_COUNTS, dtype=np.int32)

    def is_accepting(self, configuration: Configuration) -> bool:
        """Whether the text may end here."""
        state, stack = configuration
        while stack != EMPTY:
            outcome = self.final(state)
            if outcome == NO_OUTCOME:
                return False
            state, stack = self.popped(stack, outcome)
        return self.final(state) != NO_OUTCOME

    def read(self, configuration: Configuration, text: bytes, events: list[Event]) -> Configuration | None:
        """The configuration after the bytes ``text``; None where they are illegal. Changes of the stack go to
        ``events``.

        Raises GrammarStateError where the text nests too deeply.
        """
        state, stack = configuration
        for position, byte in enumerate(text):
            code = self.tables.flat[state << 8 | byte]
            while code == 0:
                outcome = self.final(state)  # builds the row where it is missing
                code = self.tables.flat[state << 8 | byte]
                if code == 0:
                    if outcome == NO_OUTCOME or stack == EMPTY:
                        return None
                    state, stack = self._popped(stack, outcome, position, events)
                    code = self.tables.flat[state << 8 | byte]
            if code > 0:
                state = code
                continue
            handler, target, outcome = self.tables.action_of[-code]
            if handler:
                parent, state = stack, target
                stack = self.stacks.push(handler, parent)
                remembering = self.tables.remembering_of[handler]
                if remembering.outcomes:
                    events.append(Event(Happening.PUSHED, stack, parent, position, remembering.is_value))
                    if remembering.closing is None:
                        self.careful_stacks.add(parent)
                if self.stacks.depth_of[stack] > MAX_DEPTH:
                    raise GrammarStateError(f"the text nests more than {MAX_DEPTH} levels deep")
            else:
                state, stack = self._popped(stack, outcome, position, events)
        return Configuration(self._bounded(state, stack), stack)

    def _bounded(self, state: int, stack: int) -> int:
        """The state, or its shallow twin where the stack is deep."""
        return state if self.stacks.depth_of[stack] < DEEP else self.tables.shallow(state)

    def live_bytes(self, configuration: Configuration) -> list[int]:
        """The bytes that may come next, ascending."""
        state, stack = configuration
        outcome = self.final(state)
        live = self.tables.rows[state] != 0
        while outcome != NO_OUTCOME and stack != EMPTY:
            state, stack = self.popped(stack, outcome)
            outcome = self.final(state)
            live |= self.tables.rows[state] != 0
        return np.flatnonzero(live).tolist()

    def walk(self, ranges: Ints, bits: Bits) -> Live:
        """Set the bits of the tokens that are live in ``ranges``, asking the source for what is missing.

        Raises GrammarStateError past the bound of work.
        """
        while (live := self._walked(ranges, bits)) is None:
            self.stacks.grow()
            self._misses = np.zeros((2 * len(self._misses), RANGE_FIELDS), dtype=np.int32)
            self._exits = np.zeros((2 * len(self._exits), RANGE_FIELDS), dtype=np.int32)
            self._whole = np.zeros(2 * len(self._whole), dtype=np.int32)
        return live

    def final(self, state: int) -> int:
        """The final outcome of a state, whose row is there afterwards."""
        outcome = int(self.tables.final[state])
        if outcome == UNBUILT:
            self._source.expand(self.tables, state)
            outcome = int(self.tables.final[state])
        return outcome

    def budget(self, state: int) -> Budget | None:
        """The budget of the text that a state is part of."""
        return None if self.tables.budget_of is None else self.tables.budget_of(state)

    def popped(self, stack: int, outcome: int) -> Configuration:
        """The configuration after ``stack`` is popped with ``outcome``."""
        return Configuration(self._resolve(self.stacks.handler_of[stack], outcome), self.stacks.parent_of[stack])

    def remembering(self, stack: int) -> Remembering:
        """How words read above a stack are remembered."""
        return self.tables.remembering_of[self.stacks.handler_of[stack]]

    def _popped(self, stack: int, outcome: int, position: int, events: list[Event]) -> Configuration:
        handler, parent = self.stacks.handler_of[stack], self.stacks.parent_of[stack]
        is_remembered = outcome < self.tables.remembering_of[handler].outcomes
        events.append(Event(Happening.REMEMBERED if is_remembered else Happening.POPPED, stack, parent, position))
        return Configuration(self._resolve(handler, outcome), parent)

    def _walked(self, ranges: Ints, bits: Bits) -> Live | None:
        """One attempt at `walk`; None where it needs more room."""
        first_scratch = self.stacks.count
        counts = self._counts
        counts[:] = 0, 0, 0, first_scratch
        num_ranges = len(ranges)
        work = 0
        while num_ranges:
            if not walk(
                ranges, num_ranges, first_scratch, self.trie.nodes, self.trie.tokens, self.tables.arrays,
                self.stacks.nodes, self.path, bits, self._misses, self._exits, self._whole, counts,
            ):  # fmt: skip
                return None
            num_ranges = int(counts[0])
            if num_ranges:
                counts[0] = 0
                ranges = self._misses[:num_ranges].copy()
                for subject, detail in dict.fromkeys(map(tuple, ranges[:, 5:].tolist())):
                    if detail == MISSING_ROW:
                        self.final(subject)
                    else:
                        self.final(self._resolve(subject, detail))  # the walk reads it next
                work += num_ranges
                if work > MAX_EXPANSIONS:
                    raise GrammarStateError(f"one mask needed more than {MAX_EXPANSIONS} new states")
        num_exits, num_whole = int(counts[1]), int(counts[2])
        exits = self._exits[:num_exits].copy() if num_exits else NO_RANGES
        return Live(exits, tuple(self._whole[:num_whole].tolist()) if num_whole else ())

    def _resolve(self, handler: int, outcome: int) -> int:
        index = self.tables.first_out_of[handler] + outcome
        entered = int(self.tables.resolved[index])
        if entered == UNRESOLVED:
            entered = self._source.resolve(self.tables, handler, outcome)
            self.tables.resolved[index] = entered
        return entered


NO_RANGES: Ints = np.zeros((0, RANGE_FIELDS), dtype=np.int32)
NO_RANGES.setflags(write=False)


def whole_trie(trie: TokenTrie, state: int) -> Ints:
    """The range of all tokens, read from ``state`` above a base that is not known."""
    return np.array([[0, len(trie), state, BASE, 0, 0, 0]], dtype=np.int32)
