"""The tokens of a vocabulary as one prefix tree in flat arrays, in depth-first order.

    node      0    1    2    3          tokens "a", "ab", "b"
    byte      a    b    b
    depth     0    1    0               skip[i] is the first node after the subtree of node i,
    skip      2    2    3               so that a dead branch is left in one step.

Invariant: the nodes below node i are exactly ``range(i + 1, skip[i])``; special tokens are in no node.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from grammars.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenTrie:
    """Flat prefix tree over N nodes.

    Attributes:
        byte_N: uint8, the byte on the edge into each node.
        depth_N: int32, 0 for first bytes.
        skip_N: int32, index past each node's subtree.
        first_N: int32 [N + 1]; ``tokens[first_N[i]:first_N[i + 1]]`` are the ids spelled by the path to node i.
        tokens: int32 token ids, grouped by node.
        max_depth: largest depth plus 1 (the longest token in bytes).
        vocabulary: where the tokens come from.
        shared: what grammars over this vocabulary have in common; grows, and travels nowhere.
    """

    byte_N: npt.NDArray[np.uint8]
    depth_N: npt.NDArray[np.int32]
    skip_N: npt.NDArray[np.int32]
    first_N: npt.NDArray[np.int32]
    tokens: npt.NDArray[np.int32]
    max_depth: int
    vocabulary: Vocabulary
    shared: dict[Hashable, object] = field(default_factory=dict, repr=False)

    def __getstate__(self) -> tuple[object, ...]:
        return (self.byte_N, self.depth_N, self.skip_N, self.first_N, self.tokens, self.max_depth, self.vocabulary, {})

    def __setstate__(self, state: tuple[object, ...]) -> None:
        for name, value in zip(self.__slots__, state, strict=True):
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.byte_N)

    @property
    def arrays(self) -> tuple[npt.NDArray[np.generic], ...]:
        """The arrays as `walk` takes them."""
        return (self.byte_N, self.depth_N, self.skip_N, self.first_N, self.tokens)

    def tokens_from(self, prefix: bytes) -> list[int]:
        """The ids whose bytes start with ``prefix``, which is not empty."""
        node, end = 0, len(self)
        for depth, byte in enumerate(prefix):
            while node < end and self.byte_N[node] != byte:
                node = int(self.skip_N[node])
            if node >= end:
                return []
            if depth + 1 < len(prefix):
                node, end = node + 1, int(self.skip_N[node])
        found: list[int] = self.tokens[self.first_N[node] : self.first_N[self.skip_N[node]]].tolist()
        return found

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> TokenTrie:
        """The trie of all ids that carry bytes; several ids may have equal ones."""
        ordered = sorted((text, token) for token, text in enumerate(vocabulary.tokens) if text)
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
        return cls(
            byte_N=np.asarray(byte, dtype=np.uint8),
            depth_N=np.asarray(depth, dtype=np.int32),
            skip_N=np.asarray(skip, dtype=np.int32),
            first_N=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
            tokens=np.asarray([token for _, token in ordered], dtype=np.int32),
            max_depth=max(depth, default=-1) + 1,
            vocabulary=vocabulary,
        )


def _common_prefix(left: bytes, right: bytes) -> int:
    for position, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return position
    return min(len(left), len(right))
