"""Draft trees as flat arrays.

Node 0 is the last known token; every other node is a guess for the token after its parent. Invariant:
``parents[0] == -1`` and ``0 <= parents[i] < i`` for i > 0, so that one pass from left to right visits parents first.

        node     0   1   2   3        0 ── 1 ── 2
        parent  -1   0   1   0         └── 3
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftTree:
    """A tree of guessed tokens below the last known one.

    Attributes:
        tokens: token id of each node; ``tokens[0]`` is known, the others are guesses.
        parents: index of each node's parent, -1 for node 0.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.tokens or len(self.tokens) != len(self.parents) or self.parents[0] != -1:
            raise ValueError("a draft tree needs a root and one parent per token")
        if any(not 0 <= parent < node for node, parent in enumerate(self.parents) if node):
            raise ValueError("parents must come before their children")

    def __len__(self) -> int:
        return len(self.tokens)

    @classmethod
    def chain(cls, tokens: Sequence[int]) -> DraftTree:
        """The tree without branches; ``tokens[0]`` is the last known token."""
        return cls(tokens=tuple(tokens), parents=tuple(range(-1, len(tokens) - 1)))

    def depths(self) -> tuple[int, ...]:
        """Depth of each node; node 0 has depth 0."""
        depths = [0] * len(self)
        for node in range(1, len(self)):
            depths[node] = depths[self.parents[node]] + 1
        return tuple(depths)

    def children(self) -> tuple[tuple[int, ...], ...]:
        """Children of each node, in order."""
        below: list[list[int]] = [[] for _ in self.tokens]
        for node in range(1, len(self)):
            below[self.parents[node]].append(node)
        return tuple(tuple(nodes) for nodes in below)

    def path(self, node: int) -> tuple[int, ...]:
        """Node indices from node 0 (included) to ``node`` (included)."""
        path = []
        while node >= 0:
            path.append(node)
            node = self.parents[node]
        return tuple(reversed(path))

    def kept(self, nodes: Sequence[int]) -> DraftTree:
        """The part with these ascending nodes; each of them has its parent among them."""
        renumbered = {node: index for index, node in enumerate(nodes)}
        return DraftTree(
            tokens=tuple(self.tokens[node] for node in nodes),
            parents=tuple(renumbered.get(self.parents[node], -1) for node in nodes),
        )
