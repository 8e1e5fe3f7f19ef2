"""One sequence's tree while it grows, level by level: the likeliest guesses, or guesses that are drawn.

Growth begins at the tips of a stem, which is node 0 alone or what other drafters have guessed; the stem itself always
stays. Invariant of drawn trees: how many children a node gets is settled before any token of its level is drawn, and
whatever was drawn stays, so that rejection sampling is exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from decoding.distribution import Distribution
from decoding.tree import DraftTree
from drafters.protocol import Draft, Drawing
from drafters.trees.choosing import Guess


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeLimits:
    """What one sequence's tree may be.

    Attributes:
        nodes: most nodes, those of the stem included; at least 1.
        depth: longest guess below a tip, in tokens.
        width: most nodes expanded per level, and most children of a node.
    """

    nodes: int
    depth: int
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stem:
    """What is guessed already, and the nodes of it that growth begins at.

    Attributes:
        tree: its nodes.
        tips: those of them that get children.
        drawing: how these are drawn; None for the likeliest ones.
    """

    tree: DraftTree
    tips: tuple[int, ...] = (0,)
    drawing: Drawing | None = None

    @classmethod
    def bare(cls, token: int, drawing: Drawing | None = None) -> Stem:
        """The last known token alone."""
        return cls(tree=DraftTree.chain([token]), drawing=drawing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A node to be computed.

    Attributes:
        seed: index of its sequence in the batch.
        node: its number; nodes of the stem come first, with their own numbers.
        parent: its parent's number.
        token: what it guesses.
        depth: 1 below node 0.
        asked: its children are wanted; without, it only leads to a tip.
    """

    seed: int
    node: int
    parent: int
    token: int
    depth: int
    asked: bool


class _Plant:
    """The stem, and what has grown below it."""

    def __init__(self, stem: Stem, limits: TreeLimits, reach: int | None) -> None:
        grows = limits.nodes > len(stem.tree) and limits.depth >= 1 and limits.width >= 1
        self.limits = limits
        self.tips = frozenset(stem.tips) if grows else frozenset()
        self.tokens, self.parents = list(stem.tree.tokens), list(stem.tree.parents)
        self.depths = list(stem.tree.depths())
        self._stem = len(stem.tree)
        self._reach = reach
        self._lengths = [0] * self._stem  # below the tip
        self._leading = {ancestor for tip in self.tips for ancestor in stem.tree.path(tip)}

    def leaves(self, seed: int, depth: int) -> list[Leaf]:
        """What to compute at this depth: the way to deeper tips, the tips, and guesses worth expanding."""
        if self._reach is not None and depth > self._reach:
            return []
        led = [node for node in self._leading if self.depths[node] == depth]
        new = [node for node in range(self._stem, len(self.tokens)) if self.depths[node] == depth]
        expanded = [node for node in self._expanded(new, depth) if self._lengths[node] < self.limits.depth]
        return [
            Leaf(
                seed=seed,
                node=node,
                parent=self.parents[node],
                token=self.tokens[node],
                depth=depth,
                asked=node >= self._stem or node in self.tips,
            )
            for node in sorted((*led, *expanded))
        ]

    def path(self, node: int) -> tuple[int, ...]:
        path = []
        while node:
            path.append(self.tokens[node])
            node = self.parents[node]
        return tuple(reversed(path))

    def _append(self, parent: int, tokens: Iterable[int]) -> None:
        for token in tokens:
            self.tokens.append(token)
            self.parents.append(parent)
            self.depths.append(self.depths[parent] + 1)
            self._lengths.append(self._lengths[parent] + 1)

    def _expanded(self, new: Sequence[int], depth: int) -> Sequence[int]:
        raise NotImplementedError


class LikelyPlant(_Plant):
    """Expand the likeliest nodes of a level, keep the likeliest of all: by cumulative log-probability.

    A child is never more likely than its parent and comes after it, so that the kept nodes form a tree. Nodes that
    cannot be kept any more are not expanded, and leaving them out changes no tree.
    """

    def __init__(self, stem: Stem, limits: TreeLimits, reach: int | None) -> None:
        super().__init__(stem, limits, reach)
        self._scores = [0.0] * self._stem

    def add(self, parent: int, guesses: Sequence[Guess]) -> None:
        """Children of a node, the likeliest first."""
        self._append(parent, (guess.token for guess in guesses))
        self._scores += [self._scores[parent] + guess.logprob for guess in guesses]

    def draft(self) -> Draft:
        """The stem, and the likeliest guesses up to the limit."""
        kept = [*range(self._stem), *(sorted(self._best()) if self.tips else ())]
        renumbered = {node: index for index, node in enumerate(kept)}
        return Draft(
            tree=DraftTree(
                tokens=tuple(self.tokens[node] for node in kept),
                parents=tuple(renumbered.get(self.parents[node], -1) for node in kept),
            )
        )

    def _expanded(self, new: Sequence[int], depth: int) -> Sequence[int]:  # noqa: ARG002 (every level alike)
        kept = set(self._best()) if new else set()
        return [node for node in self._ranked(new)[: self.limits.width] if node in kept]

    def _best(self) -> list[int]:
        """The new nodes that would be kept now."""
        return self._ranked(range(self._stem, len(self.tokens)))[: self.limits.nodes - self._stem]

    def _ranked(self, nodes: Sequence[int]) -> list[int]:
        return sorted(nodes, key=lambda node: (-self._scores[node], node))


class DrawnPlant(_Plant):
    """Draw the children of the nodes of a level in drawing order, as far as the level's share of the limit goes.

    The nodes that were drawn first are the likeliest to be accepted, whatever their probability. A level leaves one
    node to each level below it, so that a small limit gives a deep tree whose first levels are wide:

        limit 9, width 2, depth 5      0 ─┬─ 1 ─┬─ 3 ──── 6 ── 7 ── 8
                                          │     └─ 4
                                          └─ 2 ─── 5
    """

    def __init__(self, stem: Stem, limits: TreeLimits, reach: int | None, *, drawing: Drawing, stream: bytes) -> None:
        super().__init__(stem, limits, reach)
        self.drawing = drawing
        self._stream = stream
        self._proposals: dict[int, Distribution] = {}
        self._deepest = max((self.depths[tip] for tip in self.tips), default=0) + limits.depth
        if reach is not None:
            self._deepest = min(self._deepest, reach + 1)
        self._level = -1
        self._left = 0

    def draw(self, parent: int, proposal: Distribution) -> None:
        """Children of a node, from ``proposal``; nodes of a level come in order."""
        depth = self.depths[parent]
        if depth != self._level:
            self._level, self._left = depth, self._share(depth)
        count = min(self.limits.width, self._left)
        if count:
            tokens = proposal.draw(self.drawing.keys.at(depth, self._stream), count)
            self._left -= len(tokens)
            self._append(parent, tokens)
            self._proposals[parent] = proposal

    def draft(self) -> Draft:
        """Everything that was drawn."""
        tree = DraftTree(tokens=tuple(self.tokens), parents=tuple(self.parents))
        return Draft(tree=tree, proposals=self._proposals)

    def _expanded(self, new: Sequence[int], depth: int) -> Sequence[int]:
        enough = -(-self._share(depth) // self.limits.width)
        return new[: min(self.limits.width, enough)]

    def _share(self, depth: int) -> int:
        """Most children of all nodes of this depth together."""
        room = self.limits.nodes - len(self.tokens)
        return min(room, max(1, room - (self._deepest - depth - 1)))
