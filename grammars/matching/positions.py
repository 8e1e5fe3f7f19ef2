"""Where samples stand: one object per configuration and memory, with its row and the way on from it.

Samples with one grammar walk the same ground over and over, so what a token led to once is looked up and not read
again. Invariant: `follow` and `row` answer as if nothing were remembered; what is remembered is bounded.
"""

from __future__ import annotations

from decoding.errors import GrammarStateError
from decoding.masks import MaskRow
from grammars.matching.automaton import Configuration, PushdownAutomaton
from grammars.matching.masks import Masks
from grammars.matching.memory import EMPTY_MEMORY, Event, WordMemory
from grammars.matching.repeats import Repeats

MAX_POSITIONS = 8192
"""Most positions that are remembered together."""
MAX_WEIGHT = 64
"""Positions with a larger memory (see `WordMemory.weight`) are not remembered: no other sample comes by."""
MAX_ROW_BYTES = 8 << 20
"""Most bytes of the rows that a memory cut something out of; the others are kept in the cache of rows."""
BYTES_PER_POSITION = 400
"""Memory of a position with its ways on, about."""


class Position:
    """Where a sample stands, what it must not repeat, and what it has read of a text with a budget.

    Attributes:
        configuration, memory, run_tokens: these three, the last as in `tables.Budget`; they never change.
        row: the legal next tokens, once they were asked for.
        after: the positions that tokens lead to, once they were advanced over.
    """

    __slots__ = ("after", "configuration", "memory", "row", "run_tokens")

    def __init__(self, configuration: Configuration, memory: WordMemory, run_tokens: int = 0) -> None:
        self.configuration = configuration
        self.memory = memory
        self.run_tokens = run_tokens
        self.row: MaskRow | None = None
        self.after: dict[int, Position] = {}

    def __repr__(self) -> str:
        return f"Position({self.configuration}, {self.memory})"


class Positions:
    """The positions of one grammar."""

    def __init__(self, automaton: PushdownAutomaton, masks: Masks, repeats: Repeats) -> None:
        self._automaton = automaton
        self._masks = masks
        self._repeats = repeats
        self._known: dict[tuple[Configuration, WordMemory, int], Position] = {}
        self.start = Position(automaton.start, EMPTY_MEMORY)
        self._forget()

    @property
    def num_bytes(self) -> int:
        """Memory of the positions, about, without the rows that are cached elsewhere."""
        return BYTES_PER_POSITION * len(self._known) + self._masks.cut_bytes - self._cut_bytes

    def row(self, position: Position) -> MaskRow:
        """The legal next tokens. Raises GrammarStateError where finding them is too much work."""
        row = position.row
        if row is None:
            row = self._masks.row(position.configuration, position.memory)
            if self._masks.num_drops != self._drops or self._masks.cut_bytes - self._cut_bytes > MAX_ROW_BYTES:
                self._forget()  # else rows that were dropped would live on here
            position.row = row
        return row

    def follow(self, position: Position, token: int) -> Position:
        """The position after a token that is no end of the text. Raises GrammarStateError where it is illegal."""
        after = position.after.get(token)
        if after is None:
            vocabulary = self._automaton.trie.vocabulary
            text = vocabulary.readable[token] if 0 <= token < vocabulary.num_tokens else b""
            found = self.read(position, text) if text else None
            if found is None:
                raise GrammarStateError(f"token {token} is illegal here")
            after = self._at(found if self._automaton.tables.budget_of is None else self._charged(position, found))
            if after.memory.weight <= MAX_WEIGHT:
                position.after[token] = after
        return after

    def read(self, position: Position, text: bytes) -> Position | None:
        """The position after some bytes, on its own; None where they are illegal."""
        (state, stack), memory = position.configuration, position.memory
        flat = self._automaton.tables.flat
        for byte in text:
            code = flat[state << 8 | byte]
            if code <= 0:
                break
            state = code
        else:  # the stack did not change
            if not memory.partials:
                return Position(Configuration(state, stack), memory)
            return self._checked(Configuration(state, stack), memory.after(text, []))
        events: list[Event] = []
        after = self._automaton.read(position.configuration, text, events)
        return None if after is None else self._checked(after, memory.after(text, events))

    def _charged(self, before: Position, after: Position) -> Position:
        """The position after one more token, out of whose run there is only the way that closes it once it is spent."""
        budget = self._automaton.budget(after.configuration.state)
        if budget is None:
            return after
        old = self._automaton.budget(before.configuration.state)
        tokens = before.run_tokens + 1 if old is not None and old.run == budget.run else 1
        state, stack = after.configuration
        return Position(Configuration(budget.closing if tokens >= budget.most else state, stack), after.memory, tokens)

    def _checked(self, configuration: Configuration, memory: WordMemory | None) -> Position | None:
        if memory is None or self._repeats.is_exhausted(configuration, memory):
            return None
        return Position(configuration, memory)

    def _at(self, position: Position) -> Position:
        """The one that is known with the same configuration and memory."""
        if position.memory.weight > MAX_WEIGHT:
            return position
        key = (position.configuration, position.memory, position.run_tokens)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= MAX_POSITIONS:
                self._forget()
            known = self._known[key] = position
        return known

    def _forget(self) -> None:
        """Let go of all positions; those where samples stand now stay theirs."""
        self._drops = self._masks.num_drops
        self._cut_bytes = self._masks.cut_bytes
        for position in self._known.values():
            position.row = None
            position.after = {}
        self._known = {(self.start.configuration, self.start.memory, self.start.run_tokens): self.start}
