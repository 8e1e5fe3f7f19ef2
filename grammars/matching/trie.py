"""The tokens of a vocabulary as one prefix tree in flat arrays, in depth-first order.

    node      0    1    2    3          tokens "a", "ab", "b"
    byte      a    b    b
    depth     0    1    0               skip[i] is the first node after the subtree of node i,
    skip      2    2    3               so that a dead branch is left in one step.

Special tokens that a grammar may name are in it under bytes that no text holds (`Vocabulary.readable`).
Invariant: the nodes below node i are exactly ``range(i + 1, skip[i])``; end-of-sequence tokens are in no node.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from decoding.row_bank import RowBank
from grammars.characters import writable
from grammars.matching.rows import freeze
from grammars.matching.walk import child, find
from grammars.regular.charset import CharSet
from grammars.vocabulary import Vocabulary

BYTE, DEPTH, SKIP, FIRST = range(4)
"""Columns of a node: the byte on the edge into it, 0 for depth of first bytes, the index past its subtree, and the
index of its first token."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenTrie:
    """Flat prefix tree over N nodes.

    Attributes:
        nodes: int32 [N + 1, 4], the columns above; the last row only ends the tokens of the one before.
        tokens: int32 token ids, grouped by node: ``tokens[nodes[i, FIRST]:nodes[i + 1, FIRST]]`` are spelled by the
        path
            to node i.
        max_depth: largest depth plus 1 (the longest token in bytes).
        vocabulary: where the tokens come from.
        shared: what grammars over this vocabulary have in common; grows, and travels nowhere.
        bank: the mask rows over this vocabulary; travels nowhere either.
    """

    nodes: npt.NDArray[np.int32]
    tokens: npt.NDArray[np.int32]
    max_depth: int
    vocabulary: Vocabulary
    shared: dict[Hashable, object] = field(default_factory=dict, repr=False)
    bank: RowBank = field(init=False, repr=False)

    def __post_init__(self) -> None:
        size = self.vocabulary.size
        object.__setattr__(self, "bank", RowBank(lambda bits, index: freeze(bits, size, index)))

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, (self.nodes, self.tokens, self.max_depth, self.vocabulary)

    def __len__(self) -> int:
        return len(self.nodes) - 1

    @property
    def characters(self) -> CharSet:
        """The characters that the vocabulary can write; found once."""
        found = self.shared.get(CharSet)
        if not isinstance(found, CharSet):
            found = self.shared[CharSet] = writable(self.vocabulary)
        return found

    def tokens_below(self, node: int) -> npt.NDArray[np.int32]:
        """The ids spelled by the paths to a node and to all nodes below it."""
        return self.tokens[self.nodes[node, FIRST] : self.nodes[self.nodes[node, SKIP], FIRST]]

    def find(self, prefix: bytes) -> int | None:
        """The node whose path is ``prefix``, which is not empty."""
        node = find(self.nodes, np.frombuffer(prefix, dtype=np.uint8))
        return None if node < 0 else int(node)

    def child(self, above: int | None, byte: int) -> int | None:
        """The node on the edge ``byte`` below another one, or below the root."""
        node = child(self.nodes, -1 if above is None else above, byte)
        return None if node < 0 else int(node)

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> TokenTrie:
        """The trie of all ids that automata read; several ids may have equal bytes."""
        ordered = sorted((text, token) for token, text in enumerate(vocabulary.readable) if text)
        byte: list[int] = []
        depth: list[int] = []
        skip: list[int] = []
        node_of: list[int] = []
        path: list[int] = []
        previous = b""
        for text, _ in ordered:
            shared = _common_prefix(previous, text)
            while len(path) > shared:
                skip[path.pop()] = len(byte)
            for position in range(shared, len(text)):
                path.append(len(byte))
                byte.append(text[position])
                depth.append(position)
                skip.append(0)
            node_of.append(path[-1])
            previous = text
        while path:
            skip[path.pop()] = len(byte)
        counts = np.bincount(np.asarray(node_of, dtype=np.int64), minlength=len(byte))
        first = np.concatenate([[0], np.cumsum(counts)])
        return cls(
            nodes=np.stack([[*byte, 0], [*depth, 0], [*skip, 0], first], axis=1).astype(np.int32),
            tokens=np.asarray([token for _, token in ordered], dtype=np.int32),
            max_depth=max(depth, default=-1) + 1,
            vocabulary=vocabulary,
        )


def _rebuilt(nodes: npt.NDArray[np.int32], tokens: npt.NDArray[np.int32], depth: int, words: Vocabulary) -> TokenTrie:
    return TokenTrie(nodes=nodes, tokens=tokens, max_depth=depth, vocabulary=words)


def _common_prefix(left: bytes, right: bytes) -> int:
    for position, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return position
    return min(len(left), len(right))
