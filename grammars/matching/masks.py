"""Mask rows: one per configuration, shared by all samples, less what a sample's memory forbids.

A row is put together from what is live *above* the stack, which depends on the state alone and is shared by every
configuration with it, and what is live after the stack is popped.

Invariant: rows handed out are immutable, and equal rows are one object while they are cached.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from decoding.errors import GrammarStateError
from decoding.masks import MaskRow, num_words
from grammars.matching.automaton import NO_RANGES, Configuration, Live, PushdownAutomaton, whole_trie
from grammars.matching.hints import Counted, Either, Hint, Overlay, Shared
from grammars.matching.lengths import TokenLengths
from grammars.matching.memory import EMPTY_MEMORY, WordMemory
from grammars.matching.repeats import Repeats, WholeToken
from grammars.matching.row_cache import RowCache, SharedRow
from grammars.matching.tables import NO_OUTCOME
from grammars.matching.walk import RANGE_FIELDS, Bits, Ints, clear, overlay

MAX_CACHED_STATES = 1024
MAX_CACHED_STACKS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class _Above:
    """What is live from a state without looking below the base of its stack.

    Attributes:
        bits: the tokens.
        exits: the ranges of the trie that go on below the base, but for those in `common`.
        whole: tokens that hold a whole remembered word.
        common: ranges that many states have: one array for all of them.
    """

    bits: Bits
    exits: Ints
    whole: tuple[int, ...] = ()
    common: Ints = field(default_factory=lambda: NO_RANGES)


class _Below(NamedTuple):
    """What is live in `ranges`, an array of common exits, after pops of one stack."""

    ranges: Ints
    bits: Bits
    whole: tuple[WholeToken, ...]


class _AfterPops(NamedTuple):
    """What is live in `ranges` after pops that lead to certain configurations."""

    ranges: Ints
    live: Live
    bits: Bits


class FirstRow(NamedTuple):
    """The shared row at the start of the text, as it travels: the words of `MaskRow.bits_W`, and the whole tokens."""

    words: bytes
    whole: tuple[int, ...]


class Masks:
    """Rows of one grammar."""

    def __init__(self, automaton: PushdownAutomaton, repeats: Repeats) -> None:
        self._automaton = automaton
        self._vocabulary = automaton.trie.vocabulary
        self._repeats = repeats
        self._above: OrderedDict[int, _Above] = OrderedDict()
        self._below_common: OrderedDict[tuple[int, int], _Below] = OrderedDict()
        self._after_pops: OrderedDict[tuple[int, bytes], _AfterPops] = OrderedDict()
        self._rows = RowCache(automaton.trie.bank)
        self.cut_bytes = 0
        """Memory of all rows so far that a memory cut something out of; they are not kept here."""

    @property
    def num_bytes(self) -> int:
        """Memory of the cached rows."""
        above = sum(above.bits.nbytes + above.exits.nbytes for above in self._above.values())
        below = sum(live.bits.nbytes for live in self._after_pops.values())
        return self._rows.num_bytes + above + below

    @property
    def num_drops(self) -> int:
        """How often rows were dropped."""
        return self._rows.num_drops

    @property
    def first(self) -> FirstRow | None:
        """The row at the start, where it is there."""
        shared = self._rows.get(self._automaton.start)
        return None if shared is None else FirstRow(shared.row.bits_W.tobytes(), tuple(w.token for w in shared.whole))

    def adopt(self, first: FirstRow) -> None:
        """Take over the row at the start from an equal grammar's masks."""
        start = self._automaton.start
        whole = tuple(self._repeats.whole_token(start, token) for token in first.whole)
        self._rows.put(start, np.frombuffer(first.words, dtype=np.uint32), whole)

    def row(self, configuration: Configuration, memory: WordMemory) -> MaskRow:
        """The legal next tokens, end-of-sequence ids included where the text may end."""
        shared = self._rows.get(configuration) or self._computed(configuration)
        if memory is EMPTY_MEMORY and not shared.whole:
            return shared.row
        repeated = self._repeats.found(configuration, memory, shared.whole)
        return self._without(shared.row, repeated) if repeated else shared.row

    def _computed(self, configuration: Configuration) -> SharedRow:
        automaton = self._automaton
        above = self._above_stack(configuration.state)
        bits, whole = above.bits, above.whole
        checked: tuple[WholeToken, ...] = ()
        if len(above.common):
            below = self._after_common(configuration, above.common)
            bits = bits | below.bits
            checked = below.whole
        if len(above.exits):
            bits = bits.copy() if bits is above.bits else bits
            live = automaton.walk(self._below(configuration.stack, above.exits), bits)
            whole += live.whole
        if automaton.final(configuration.state) != NO_OUTCOME and automaton.is_accepting(configuration):
            bits = bits.copy() if bits is above.bits else bits
            for token in self._vocabulary.eos_ids:
                bits[token >> 5] |= np.uint32(1 << (token & 31))
        if whole:
            checked += tuple(self._repeats.whole_token(configuration, token) for token in whole)
        return self._rows.put(configuration, bits, checked)

    def _after_common(self, configuration: Configuration, exits: Ints) -> _Below:
        """What is live in common exits, found once for all states that have them above a stack.

        They are exits of words, above which nothing is pushed, so that whole tokens too are alike for all these states.
        """
        key = (id(exits), configuration.stack)
        below = self._below_common.get(key)
        if below is None:
            ranges = self._below(configuration.stack, exits)
            live, bits = self._live_in(exits, ranges)
            whole = tuple(self._repeats.whole_token(configuration, token) for token in live.whole)
            below = self._below_common[key] = _Below(exits, bits, whole)
            if len(self._below_common) > MAX_CACHED_STACKS:
                self._below_common.popitem(last=False)
        return below

    def _live_in(self, exits: Ints, ranges: Ints) -> tuple[Live, Bits]:
        """What is live in common exits after pops that lead to the configurations of ``ranges``, which other stacks
        lead to as well: those of one object's keys in their order do.
        """
        key = (id(exits), ranges[:, 2:4].tobytes())
        found = self._after_pops.get(key)
        if found is None:
            bits = np.zeros(num_words(self._vocabulary.size), dtype=np.uint32)
            found = self._after_pops[key] = _AfterPops(exits, self._automaton.walk(ranges, bits), bits)
            if len(self._after_pops) > MAX_CACHED_STACKS:
                self._after_pops.popitem(last=False)
        return found.live, found.bits

    def _above_stack(self, state: int) -> _Above:
        above = self._above.get(state)
        if above is None:
            hint = self._automaton.tables.hint(state)
            above = self._found(state, hint)
            if hint is None or isinstance(hint, Shared):  # the others are quickly found again, and many
                self._above[state] = above
                if len(self._above) > MAX_CACHED_STATES:
                    self._above.popitem(last=False)
        return above

    def _found(self, state: int, hint: Hint | None) -> _Above:
        trie = self._automaton.trie
        if isinstance(hint, Overlay):
            return self._overlaid(hint)
        if isinstance(hint, Counted):
            return self._cut(hint)
        if isinstance(hint, Either):
            cuts = [self._cut(part) for part in hint.parts]
            exits = np.concatenate([part for cut in cuts for part in (cut.exits, cut.common)])
            return _Above(bits=np.bitwise_or.reduce([cut.bits for cut in cuts]), exits=exits)
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
        base = self._above_stack(hint.base) if hint.base else None
        if base is not None:
            bits = base.bits.copy()
            below = base.exits if not len(base.common) else np.concatenate((base.exits, base.common))
        else:
            bits, below = np.zeros(num_words(self._vocabulary.size), dtype=np.uint32), NO_RANGES
        exits = np.empty((len(below) + hint.high - hint.low, RANGE_FIELDS), dtype=np.int32)
        exits[: len(below)] = below
        count, as_before = overlay(
            words.blob, words.begins, words.outcomes, hint.low, hint.high, hint.depth, trie.nodes, trie.tokens,
            bits, exits, len(below),
        )  # fmt: skip
        if base is not None and below is base.exits and as_before:
            return _Above(bits=bits, exits=exits[len(below) : count], common=below)
        return _Above(bits=bits, exits=exits[:count])

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
        if exits is lengths.exits:
            return _Above(bits=bits, exits=NO_RANGES, common=exits)
        return _Above(bits=bits, exits=exits)

    def _below(self, stack: int, exits: Ints) -> Ints:
        """The ranges of ``exits`` with the configurations that they go on in."""
        ranges = exits.copy()
        outcomes = exits[:, 5].tolist()
        after = {outcome: self._automaton.popped(stack, outcome) for outcome in dict.fromkeys(outcomes)}
        ranges[:, 2:4] = after[outcomes[0]] if len(after) == 1 else [after[outcome] for outcome in outcomes]
        return ranges

    def _without(self, row: MaskRow, tokens: list[Ints]) -> MaskRow:
        bits = row.bits_W.view(np.uint32).copy()
        for some in tokens:
            clear(bits, some)
        if not bits.any():
            raise GrammarStateError("every key that may come next was used before")
        self.cut_bytes += bits.nbytes
        return self._automaton.trie.bank.row(bits)
