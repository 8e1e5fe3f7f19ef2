"""Mask rows: one per configuration, shared by all samples, less what a sample's memory forbids.

A row is put together from what is live *above* the stack, which depends on the state alone and is shared by every
configuration with it, and what is live after the stack is popped.

Invariant: rows handed out are immutable, and equal rows are one object while they are cached.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from decoding.errors import GrammarStateError
from decoding.masks import MaskRow, num_words
from grammars.matching.automaton import NO_RANGES, Configuration, PushdownAutomaton, whole_trie
from grammars.matching.hints import Counted, Hint, Overlay, Shared
from grammars.matching.lengths import TokenLengths
from grammars.matching.memory import EMPTY_MEMORY, Event, Happening, WordMemory
from grammars.matching.rows import freeze
from grammars.matching.stacks import EMPTY
from grammars.matching.tables import NO_OUTCOME
from grammars.matching.walk import RANGE_FIELDS, Bits, Ints, clear, overlay
from grammars.matching.words import MAX_COUNTED, Words

MAX_CACHED_ROWS = 8192
NEVER = -1
"""No stack: nothing is remembered above it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Above:
    """What is live from a state without looking below the base of its stack.

    Attributes:
        bits: the tokens.
        exits: the ranges of the trie that go on below the base.
        whole: tokens that hold a whole remembered word.
    """

    bits: Bits
    exits: Ints
    whole: tuple[int, ...]


class _WholeToken(NamedTuple):
    """A token that holds a whole remembered word: `word`, above the stack `node`.

    The word is None where the token holds more than one, or where its words may run out: it must be read to tell.
    """

    token: int
    node: int
    word: bytes | None


class _SharedRow(NamedTuple):
    """The row of a configuration, and the tokens in it that a memory may forbid by themselves."""

    row: MaskRow
    whole: tuple[_WholeToken, ...]


class FirstRow(NamedTuple):
    """The shared row at the start of the text, as it travels: the words of `MaskRow.bits_W`, and the whole tokens."""

    words: bytes
    whole: tuple[int, ...]


class Masks:
    """Rows of one grammar."""

    def __init__(self, automaton: PushdownAutomaton) -> None:
        self._automaton = automaton
        self._vocabulary = automaton.trie.vocabulary
        self._words = Words(automaton)
        self._above: OrderedDict[int, _Above] = OrderedDict()
        self._shared: OrderedDict[Configuration, _SharedRow] = OrderedDict()
        self._by_bits: dict[bytes, MaskRow] = {}

    @property
    def num_bytes(self) -> int:
        """Memory of the cached rows."""
        rows = sum(row.bits_W.nbytes for row in self._by_bits.values())
        return rows + sum(above.bits.nbytes + above.exits.nbytes for above in self._above.values())

    @property
    def first(self) -> FirstRow | None:
        """The row at the start, where it is there."""
        shared = self._shared.get(self._automaton.start)
        return None if shared is None else FirstRow(shared.row.bits_W.tobytes(), tuple(w.token for w in shared.whole))

    def adopt(self, first: FirstRow) -> None:
        """Take over the row at the start from an equal grammar's masks."""
        row = self._frozen(np.frombuffer(first.words, dtype=np.uint32))
        start = self._automaton.start
        self._shared[start] = _SharedRow(row, tuple(self._whole_token(start, token) for token in first.whole))

    def row(self, configuration: Configuration, memory: WordMemory) -> MaskRow:
        """The legal next tokens, end-of-sequence ids included where the text may end."""
        shared = self._shared.get(configuration)
        if shared is None:
            shared = self._shared[configuration] = self._computed(configuration)
            if len(self._shared) > MAX_CACHED_ROWS:
                self._shared.popitem(last=False)
                self._by_bits.clear()
        else:
            self._shared.move_to_end(configuration)
        if memory is EMPTY_MEMORY and not shared.whole:
            return shared.row
        repeated = self._repeated(configuration, memory, shared.whole)
        return self._without(shared.row, repeated) if repeated else shared.row

    def is_exhausted(self, configuration: Configuration, memory: WordMemory) -> bool:
        """Whether the word being read can only become one that was read before."""
        if memory.partial is None or not memory.frames or self._automaton.closing(memory.partial_node) is not None:
            return False
        to_come = self._words.to_come(configuration.state)
        if to_come > MAX_COUNTED:
            return False
        used = memory.words_above(memory.partial_parent)
        return sum(word.startswith(memory.partial) for word in used) >= to_come

    def _computed(self, configuration: Configuration) -> _SharedRow:
        automaton = self._automaton
        above = self._above_stack(configuration.state)
        bits, whole = above.bits, above.whole
        if len(above.exits):
            bits = bits.copy()
            live = automaton.walk(self._below(configuration.stack, above.exits), bits)
            whole += live.whole
        if automaton.final(configuration.state) != NO_OUTCOME and automaton.is_accepting(configuration):
            bits = bits.copy() if bits is above.bits else bits
            for token in self._vocabulary.eos_ids:
                bits[token >> 5] |= np.uint32(1 << (token & 31))
        return _SharedRow(self._frozen(bits), tuple(self._whole_token(configuration, token) for token in whole))

    def _above_stack(self, state: int) -> _Above:
        above = self._above.get(state)
        if above is None:
            above = self._above[state] = self._found(state, self._automaton.tables.hint(state))
            if len(self._above) > MAX_CACHED_ROWS:
                self._above.popitem(last=False)
        return above

    def _found(self, state: int, hint: Hint | None) -> _Above:
        trie = self._automaton.trie
        if isinstance(hint, Overlay):
            return self._overlaid(hint)
        if isinstance(hint, Counted):
            return self._cut(hint)
        if isinstance(hint, Shared) and isinstance(known := trie.shared.get(hint.key), _Above):
            return known
        bits = np.zeros(num_words(self._vocabulary.size), dtype=np.uint32)
        live = self._automaton.walk(whole_trie(trie, state), bits)
        above = _Above(bits=bits, exits=live.exits, whole=live.whole)
        if isinstance(hint, Shared):
            trie.shared[hint.key] = above
        return above

    def _overlaid(self, hint: Overlay) -> _Above:
        trie, words = self._automaton.trie, hint.words
        if hint.base:
            base = self._above_stack(hint.base)
            bits, below = base.bits.copy(), base.exits
        else:
            bits, below = np.zeros(num_words(self._vocabulary.size), dtype=np.uint32), NO_RANGES
        exits = np.empty((len(below) + hint.high - hint.low, RANGE_FIELDS), dtype=np.int32)
        exits[: len(below)] = below
        count = overlay(
            words.blob, words.begins, words.outcomes, hint.low, hint.high, hint.depth, trie.nodes, trie.tokens,
            bits, exits, len(below),
        )  # fmt: skip
        return _Above(bits=bits, exits=exits[:count], whole=())

    def _cut(self, hint: Counted) -> _Above:
        automaton, trie = self._automaton, self._automaton.trie
        shared = automaton.tables.hint(hint.plain)
        assert isinstance(shared, Shared)
        key = (TokenLengths, shared.key)
        lengths = trie.shared.get(key)
        if not isinstance(lengths, TokenLengths):
            plain = self._above_stack(hint.plain)
            lengths = trie.shared[key] = TokenLengths.of(automaton, hint.plain, plain.exits)
        bits, exits = lengths.cut(hint.least, hint.most)
        return _Above(bits=bits, exits=exits, whole=())

    def _below(self, stack: int, exits: Ints) -> Ints:
        """The ranges of ``exits`` with the configurations that they go on in."""
        ranges = exits.copy()
        outcomes = exits[:, 5].tolist()
        after = {outcome: self._automaton.popped(stack, outcome) for outcome in dict.fromkeys(outcomes)}
        ranges[:, 2:4] = after[outcomes[0]] if len(after) == 1 else [after[outcome] for outcome in outcomes]
        return ranges

    def _frozen(self, bits: Bits) -> MaskRow:
        key = bits.tobytes()
        row = self._by_bits.get(key)
        if row is None:
            row = self._by_bits[key] = freeze(bits, self._vocabulary.size)
        return row

    def _without(self, row: MaskRow, tokens: list[Ints]) -> MaskRow:
        bits = row.bits_W.view(np.uint32).copy()
        for some in tokens:
            clear(bits, some)
        if not bits.any():
            raise GrammarStateError("every key that may come next was used before")
        return freeze(bits, self._vocabulary.size)

    def _repeated(self, configuration: Configuration, memory: WordMemory, whole: tuple[_WholeToken, ...]) -> list[Ints]:
        """The tokens by which a word comes again, or can only come again."""
        repeated = []
        if memory.partial is not None:
            used = memory.words_above(memory.partial_parent)
            for word in used:
                if word.startswith(memory.partial):
                    node = self._trie_node(configuration, memory, word, used)
                    if node is not None:
                        repeated.append(self._automaton.trie.tokens_below(node))
        again = [item.token for item in whole if self._comes_again(configuration, memory, item)]
        return [*repeated, np.array(again, dtype=np.int32)] if again else repeated

    def _whole_token(self, configuration: Configuration, token: int) -> _WholeToken:
        text = self._vocabulary.tokens[token]
        events: list[Event] = []
        self._automaton.read(configuration, text, events)
        begun = [event for event in events if event.kind is Happening.PUSHED]
        ended = [event for event in events if event.kind is Happening.REMEMBERED]
        if len(ended) != 1 or len(begun) != 1 or self._automaton.closing(begun[0].node) is None:
            return _WholeToken(token, EMPTY, None)
        (end,) = ended
        popped = any(event.node == end.parent for event in events if event.kind is Happening.POPPED)
        node = NEVER if popped else end.parent  # words above a stack that the token pops first are forgotten
        return _WholeToken(token, node, text[begun[0].position + 1 : end.position])

    def _comes_again(self, configuration: Configuration, memory: WordMemory, item: _WholeToken) -> bool:
        """Whether a token that holds a whole word repeats one."""
        if item.word is not None:
            return item.word in memory.words_above(item.node)
        text = self._vocabulary.tokens[item.token]
        events: list[Event] = []
        after = self._automaton.read(configuration, text, events)
        assert after is not None
        then = memory.after(text, events)
        return then is None or self.is_exhausted(after, then)

    def _trie_node(
        self, configuration: Configuration, memory: WordMemory, word: bytes, used: frozenset[bytes]
    ) -> int | None:
        """The node of the trie at which a token ends ``word``, or enters a part that no unused word starts with."""
        assert memory.partial is not None
        automaton, find = self._automaton, self._automaton.trie.find
        rest = word[len(memory.partial) :]
        closing = self._automaton.closing(memory.partial_node)
        if closing is not None:
            return find(rest + closing)
        for position in range(len(rest)):
            after = automaton.read(configuration, rest[position : position + 1], [])
            assert after is not None
            configuration = after
            to_come = self._words.to_come(configuration.state)
            start = memory.partial + rest[: position + 1]
            if to_come <= MAX_COUNTED and sum(other.startswith(start) for other in used) >= to_come:
                return find(rest[: position + 1])
        for byte in automaton.live_bytes(configuration):
            events: list[Event] = []
            automaton.read(configuration, bytes((byte,)), events)
            if any(event.kind is Happening.REMEMBERED for event in events):
                return find(rest + bytes((byte,)))
        return None
