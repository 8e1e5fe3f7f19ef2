"""Trees grown level by level by cumulative log-probability (EAGLE-2, Li et al. 2024b).

    expand    at each level the `width` most likely nodes of each sequence get their `width` most likely legal children
    re-rank   of all new nodes the most likely ones are kept, up to the sequence's limit

Growth begins at the tips of a stem, which is node 0 alone or what other drafters have guessed; the stem itself always
stays. A child is never more likely than its parent and comes after it, so that the kept nodes form a tree. Invariant:
nodes that cannot be kept any more are not expanded, and leaving them out changes no tree.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from decoding.tree import DraftTree
from drafters.trees.choosing import DraftVocabulary, Guess
from drafters.trees.frame import Frame, Place


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
    """What is guessed already, and the nodes of it that growth begins at."""

    tree: DraftTree
    tips: tuple[int, ...] = (0,)

    @classmethod
    def bare(cls, token: int) -> Stem:
        """The last known token alone."""
        return cls(tree=DraftTree.chain([token]))


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


class DraftLogits(Protocol):
    """A source of draft logits, one row per node."""

    @property
    def vocabulary(self) -> DraftVocabulary:
        """What a row's columns stand for."""
        ...

    @property
    def reach(self) -> int | None:
        """The deepest node whose children it can guess; None for any."""
        ...

    def first(self) -> torch.Tensor:
        """Logits [S, Vd] for the children of every sequence's node 0."""
        ...

    def deeper(self, leaves: Sequence[Leaf]) -> torch.Tensor:
        """Logits [R, Vd] for the children of those leaves of one depth that are asked, in order.

        Leaves of a sequence are adjacent, and each one's parent was a leaf of the call before, or is node 0.
        """
        ...


class _Plant:
    """One sequence's nodes so far: the stem, and guesses with their log-probabilities."""

    def __init__(self, stem: Stem, limits: TreeLimits, reach: int | None) -> None:
        grows = limits.nodes > len(stem.tree) and limits.depth >= 1 and limits.width >= 1
        self.limits = limits
        self.tips = frozenset(stem.tips) if grows else frozenset()
        self.tokens, self.parents = list(stem.tree.tokens), list(stem.tree.parents)
        self._stem = len(stem.tree)
        self._reach = reach
        self._depths = list(stem.tree.depths())
        self._lengths = [0] * self._stem  # below the tip
        self._scores = [0.0] * self._stem
        self._leading = {ancestor for tip in self.tips for ancestor in stem.tree.path(tip)}

    def add(self, parent: int, guesses: Sequence[Guess]) -> None:
        for guess in guesses:
            self.tokens.append(guess.token)
            self.parents.append(parent)
            self._scores.append(self._scores[parent] + guess.logprob)
            self._depths.append(self._depths[parent] + 1)
            self._lengths.append(self._lengths[parent] + 1)

    def leaves(self, seed: int, depth: int) -> list[Leaf]:
        """What to compute at this depth: the way to deeper tips, the tips, and guesses worth expanding."""
        if self._reach is not None and depth > self._reach:
            return []
        led = [node for node in self._leading if self._depths[node] == depth]
        new = [node for node in range(self._stem, len(self.tokens)) if self._depths[node] == depth]
        kept = set(self.best()) if new else set()
        expanded = [
            node
            for node in self._ranked(new)[: self.limits.width]
            if node in kept and self._lengths[node] < self.limits.depth
        ]
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

    def best(self) -> list[int]:
        """The new nodes that would be kept now."""
        return self._ranked(range(self._stem, len(self.tokens)))[: self.limits.nodes - self._stem]

    def path(self, node: int) -> tuple[int, ...]:
        path = []
        while node:
            path.append(self.tokens[node])
            node = self.parents[node]
        return tuple(reversed(path))

    def tree(self) -> DraftTree:
        kept = [*range(self._stem), *(sorted(self.best()) if self.tips else ())]
        renumbered = {node: index for index, node in enumerate(kept)}
        return DraftTree(
            tokens=tuple(self.tokens[node] for node in kept),
            parents=tuple(renumbered.get(self.parents[node], -1) for node in kept),
        )

    def _ranked(self, nodes: Sequence[int]) -> list[int]:
        return sorted(nodes, key=lambda node: (-self._scores[node], node))


def grow(logits: DraftLogits, stems: Sequence[Stem], limits: Sequence[TreeLimits], frame: Frame) -> list[DraftTree]:
    """One tree per sequence, whose first nodes are its stem; one call of logits and frame per level for all of them."""
    plants = [_Plant(stem, limit, logits.reach) for stem, limit in zip(stems, limits, strict=True)]
    rooted = [seed for seed, plant in enumerate(plants) if 0 in plant.tips]
    if rooted:
        _add_children(plants, [(seed, 0) for seed in rooted], logits.first()[rooted], logits.vocabulary, frame)
    for depth in itertools.count(1):
        leaves = [leaf for seed, plant in enumerate(plants) for leaf in plant.leaves(seed, depth)]
        if not leaves:
            return [plant.tree() for plant in plants]
        logits_RV = logits.deeper(leaves)  # the device computes while the grammar is asked
        level = [(leaf.seed, leaf.node) for leaf in leaves if leaf.asked]
        _add_children(plants, level, logits_RV, logits.vocabulary, frame)
    raise AssertionError  # every depth of a tree is finite


def _add_children(
    plants: Sequence[_Plant],
    level: Sequence[tuple[int, int]],
    logits_RV: torch.Tensor,
    vocabulary: DraftVocabulary,
    frame: Frame,
) -> None:
    """Children of the nodes (sequence, node) of one level."""
    if not level:
        return
    followings = frame.follow([Place(seed=seed, path=plants[seed].path(node)) for seed, node in level])
    alive = [row for row, following in enumerate(followings) if not following.ended]
    if not alive:
        return
    found = vocabulary.most_likely(
        logits_RV if len(alive) == len(level) else logits_RV[alive],
        [followings[row].mask for row in alive],
        [plants[level[row][0]].limits.width for row in alive],
    )
    for row, guesses in zip(alive, found, strict=True):
        seed, node = level[row]
        plants[seed].add(node, guesses)
