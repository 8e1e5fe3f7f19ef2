"""Mask rows: one per configuration, shared by all samples, less what a sample's memory forbids.

Invariant: rows handed out are immutable, and equal rows are one object while they are cached.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from decoding.errors import GrammarStateError
from decoding.masks import MaskRow, num_words
from grammars.matching.automaton import Configuration, PushdownAutomaton
from grammars.matching.memory import WordMemory
from grammars.matching.walk import REMEMBERED

MAX_CACHED_ROWS = 8192


class _SharedRow(NamedTuple):
    """The row of a configuration, and the tokens in it that hold a whole remembered word."""

    row: MaskRow
    whole: tuple[int, ...]


class FirstRow(NamedTuple):
    """The shared row at the start of the text, as it travels: the words of `MaskRow.bits_W`, and the whole tokens."""

    words: bytes
    whole: tuple[int, ...]


class Masks:
    """Rows of one grammar."""

    def __init__(self, automaton: PushdownAutomaton) -> None:
        self._automaton = automaton
        self._vocabulary = automaton.trie.vocabulary
        self._shared: OrderedDict[Configuration, _SharedRow] = OrderedDict()
        self._by_bits: dict[bytes, MaskRow] = {}
        self._legal = np.zeros(num_words(self._vocabulary.size) * 32, dtype=np.uint8)

    @property
    def num_bytes(self) -> int:
        """Memory of the cached rows."""
        return sum(row.bits_W.nbytes for row in self._by_bits.values())

    @property
    def first(self) -> FirstRow | None:
        """The row at the start, where it is there."""
        shared = self._shared.get(self._automaton.start)
        return None if shared is None else FirstRow(shared.row.bits_W.tobytes(), shared.whole)

    def adopt(self, first: FirstRow) -> None:
        """Take over the row at the start from an equal grammar's masks."""
        row = self._frozen(np.frombuffer(first.words, dtype=np.uint8))
        self._shared[self._automaton.start] = _SharedRow(row, first.whole)

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
        if not memory.frames and not shared.whole:
            return shared.row
        repeated = self._repeated(configuration, memory, shared.whole)
        return self._without(shared.row, repeated) if repeated else shared.row

    def is_exhausted(self, configuration: Configuration, memory: WordMemory) -> bool:
        """Whether the word being read can only become one that was read before."""
        if memory.partial is None or not memory.frames:
            return False
        used = memory.words_above(memory.partial_parent)
        begun = sum(word.startswith(memory.partial) for word in used)
        return bool(begun) and self._automaton.count_words(configuration.state, begun) <= begun

    def _computed(self, configuration: Configuration) -> _SharedRow:
        legal = self._legal
        legal[:] = 0
        self._automaton.mark(configuration, legal)
        if self._automaton.is_accepting(configuration):
            legal[list(self._vocabulary.eos_ids)] = 1
        row = self._frozen(np.packbits(legal != 0, bitorder="little"))
        return _SharedRow(row, tuple(np.flatnonzero(legal == 2).tolist()))

    def _frozen(self, bits: npt.NDArray[np.uint8]) -> MaskRow:
        key = bits.tobytes()
        row = self._by_bits.get(key)
        if row is None:
            try:
                row = MaskRow.from_bits(bits.view(np.int32), self._vocabulary.size)
            except ValueError as error:
                raise GrammarStateError("no token of the vocabulary spells what the constraint needs next") from error
            self._by_bits[key] = row
        return row

    def _without(self, row: MaskRow, tokens: set[int]) -> MaskRow:
        bits = row.bits_W.copy()
        for token in tokens:
            bits[token >> 5] &= ~np.int32(1 << (token & 31)) if token & 31 < 31 else np.int32(0x7FFFFFFF)
        try:
            return MaskRow.from_bits(bits, self._vocabulary.size)
        except ValueError as error:
            raise GrammarStateError("every key that may come next was used before") from error

    def _repeated(self, configuration: Configuration, memory: WordMemory, whole: tuple[int, ...]) -> set[int]:
        """The tokens by which a word comes again, or can only come again."""
        repeated: set[int] = set()
        if memory.partial is not None:
            used = memory.words_above(memory.partial_parent)
            for word in used:
                if word.startswith(memory.partial):
                    repeated.update(self._towards(configuration, memory.partial, word, used))
        for token in whole:
            text = self._vocabulary.tokens[token]
            step = self._automaton.follow(configuration, text)
            assert step is not None
            after = memory.after(text, step.events, step.interned)
            if after is None or self.is_exhausted(step.configuration, after):
                repeated.add(token)
        return repeated

    def _towards(self, configuration: Configuration, partial: bytes, word: bytes, used: frozenset[bytes]) -> list[int]:
        """The tokens that end ``word``, or enter a part of it that no unused word starts with."""
        automaton, trie = self._automaton, self._automaton.trie
        rest = word[len(partial) :]
        for position in range(len(rest)):
            step = automaton.follow(configuration, rest[position : position + 1])
            assert step is not None
            configuration = step.configuration
            start = partial + rest[: position + 1]
            begun = sum(other.startswith(start) for other in used)
            if automaton.count_words(configuration.state, begun) <= begun:
                return trie.tokens_from(rest[: position + 1])
        ends = []
        for byte in automaton.live_bytes(configuration):
            step = automaton.follow(configuration, bytes((byte,)))
            if step is not None and any(kind == REMEMBERED for kind, *_ in step.events):
                ends += trie.tokens_from(rest + bytes((byte,)))
        return ends
