"""Tokens inside a string by how many characters they hold.

Invariant: cutting the tokens of an unbounded string by length gives the tokens of a bounded one, whatever the bounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from decoding.masks import num_words
from grammars.matching.automaton import PushdownAutomaton
from grammars.matching.trie import FIRST
from grammars.matching.walk import Bits, Ints, measure, set_between


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenLengths:
    """Tokens that can be read between two characters of a string.

    Attributes:
        within: [K + 1, W], the tokens that stay in the string and hold at most k characters, at k; K holds all.
        closing: tokens that end just where they leave the string.
        closing_lengths: how many characters come before, for each.
        exits: the ranges that go on after the string.
        exit_lengths: how many characters come before each.
    """

    within: npt.NDArray[np.uint32]
    closing: Ints
    closing_lengths: Ints
    exits: Ints
    exit_lengths: Ints

    @classmethod
    def of(cls, automaton: PushdownAutomaton, state: int, exits: Ints) -> TokenLengths:
        """Measured from ``state``, whose rows must be there as far as tokens lead without leaving the string."""
        trie = automaton.trie
        lengths = np.empty(len(trie), dtype=np.int32)
        closes = np.empty(len(trie), dtype=np.int32)
        measure(state, trie.nodes, automaton.tables.arrays, automaton.path, lengths, closes)
        tokens_at = np.diff(trie.nodes[:, FIRST])
        token_lengths, token_closes = np.repeat(lengths, tokens_at), np.repeat(closes, tokens_at) == 1
        inside = (token_lengths >= 0) & ~token_closes
        longest = int(token_lengths[inside].max(initial=0))
        within = np.zeros((longest + 1, num_words(trie.vocabulary.size)), dtype=np.uint32)
        tokens = trie.tokens[inside]
        ones = np.uint32(1) << (tokens & 31).astype(np.uint32)
        np.bitwise_or.at(within, (token_lengths[inside], tokens >> 5), ones)
        return cls(
            within=np.bitwise_or.accumulate(within, axis=0),
            closing=trie.tokens[token_closes],
            closing_lengths=token_lengths[token_closes],
            exits=exits,
            exit_lengths=lengths[exits[:, 0] - 1],
        )

    def cut(self, least: int, most: int | None) -> tuple[Bits, Ints]:
        """The tokens with at most ``most`` characters, and at least ``least`` before they leave; exits alike."""
        longest = len(self.within) - 1
        bits = self.within[longest if most is None else min(most, longest)].copy()
        limit = UNBOUNDED if most is None else min(most, UNBOUNDED)
        set_between(bits, self.closing, self.closing_lengths, least, limit)
        kept = (self.exit_lengths >= least) & (self.exit_lengths <= limit)
        return bits, self.exits if kept.all() else self.exits[kept]


UNBOUNDED = 1 << 30
