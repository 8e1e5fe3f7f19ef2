"""Tokens inside a string by how many characters they hold.

Invariant: cutting the tokens of an unbounded string by length gives the tokens of a bounded one, whatever the bounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from decoding.masks import num_words
from grammars.matching.automaton import PushdownAutomaton
from grammars.matching.trie import FIRST, TokenTrie
from grammars.matching.walk import Bits, Ints, measure


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenLengths:
    """Tokens that can be read between two characters of a string.

    Attributes:
        within: [K + 1, W], the tokens that stay in the string and hold at most k characters, at k; K holds all.
        closing: the trie nodes at which a token leaves the string.
        closing_lengths: how many characters come before each.
    """

    within: npt.NDArray[np.uint32]
    closing: Ints
    closing_lengths: Ints

    @classmethod
    def of(cls, automaton: PushdownAutomaton, state: int) -> TokenLengths:
        """Measured from ``state``, whose rows must be there as far as tokens lead without leaving the string."""
        trie = automaton.trie
        lengths = np.empty(len(trie), dtype=np.int32)
        closes = np.empty(len(trie), dtype=np.int32)
        measure(state, trie.nodes, automaton.tables.arrays, automaton.path, lengths, closes)
        per_token = np.repeat(np.where(closes == 1, -1, lengths), np.diff(trie.nodes[:, FIRST]))
        longest = int(per_token.max(initial=0))
        within = np.zeros((longest + 1, num_words(trie.vocabulary.size)), dtype=np.uint32)
        inside = per_token >= 0
        tokens, counts = trie.tokens[inside], per_token[inside]
        np.bitwise_or.at(within, (counts, tokens >> 5), np.uint32(1) << (tokens & 31).astype(np.uint32))
        closing = np.flatnonzero(closes).astype(np.int32)
        return cls(within=np.bitwise_or.accumulate(within, axis=0), closing=closing, closing_lengths=lengths[closing])

    def cut(self, trie: TokenTrie, exits: Ints, least: int, most: int | None) -> tuple[Bits, Ints]:
        """The tokens with at most ``most`` characters, and at least ``least`` before they leave; those of ``exits``
        left.
        """
        longest = len(self.within) - 1
        bits = self.within[longest if most is None else min(most, longest)].copy()
        lengths = self.closing_lengths
        legal = lengths >= least
        if most is not None:
            legal &= lengths <= most
        nodes = self.closing[legal]
        for first, end in zip(trie.nodes[nodes, FIRST].tolist(), trie.nodes[nodes + 1, FIRST].tolist(), strict=True):
            for token in trie.tokens[first:end].tolist():
                bits[token >> 5] |= np.uint32(1 << (token & 31))
        return bits, exits[np.isin(exits[:, 0], nodes + 1)]
