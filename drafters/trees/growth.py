"""Trees grown level by level by cumulative log-probability (EAGLE-2, Li et al. 2024b).

    expand    at each level the `width` most likely nodes of each sequence get their `width` most likely legal children
    re-rank   of all nodes the most likely ones are kept, up to the sequence's limit

A child is never more likely than its parent and comes after it, so that the kept nodes form a tree. Invariant: nodes
that cannot be kept any more are not expanded, and leaving them out changes no tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch

from decoding.tree import DraftTree
from drafters.trees.choosing import DraftVocabulary, Guess
from drafters.trees.frame import Frame, Place

ROOT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeLimits:
    """What one sequence's tree may be.

    Attributes:
        nodes: most nodes, node 0 included; at least 1.
        depth: longest guess in tokens.
        width: most nodes expanded per level, and most children of a node.
    """

    nodes: int
    depth: int
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A node to be expanded.

    Attributes:
        seed: index of its sequence in the batch.
        node: its number among the sequence's guesses so far, from 0.
        parent: its parent's number, or `ROOT` below node 0.
        token: what it guesses.
        depth: 1 below node 0.
    """

    seed: int
    node: int
    parent: int
    token: int
    depth: int


class Guesser(Protocol):
    """A source of draft logits, one row per node."""

    @property
    def vocabulary(self) -> DraftVocabulary:
        """What a row's columns stand for."""
        ...

    def first(self) -> torch.Tensor:
        """Logits [S, Vd] for the children of every sequence's node 0."""
        ...

    def deeper(self, leaves: Sequence[Leaf]) -> torch.Tensor:
        """Logits [R, Vd] for the children of nodes whose parents were expanded before, a level at a time."""
        ...


@dataclass(slots=True, kw_only=True)
class _Plant:
    """One sequence's guesses so far; `best` sorts them by (log-probability descending, number ascending)."""

    limits: TreeLimits
    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)

    def add(self, parent: int, guesses: Sequence[Guess]) -> None:
        above = 0.0 if parent == ROOT else self.scores[parent]
        for guess in guesses:
            self.tokens.append(guess.token)
            self.parents.append(parent)
            self.scores.append(above + guess.logprob)
            self.depths.append(1 if parent == ROOT else self.depths[parent] + 1)

    def best(self) -> list[int]:
        order = sorted(range(len(self.scores)), key=lambda node: (-self.scores[node], node))
        return order[: self.limits.nodes - 1]

    def level(self, start: int) -> list[int]:
        """Which of the nodes from number ``start`` on are worth expanding."""
        if start == len(self.tokens) or self.depths[-1] >= self.limits.depth:
            return []
        kept = set(self.best())
        newest = sorted(range(start, len(self.tokens)), key=lambda node: (-self.scores[node], node))
        return sorted(node for node in newest[: self.limits.width] if node in kept)

    def path(self, node: int) -> tuple[int, ...]:
        path = []
        while node != ROOT:
            path.append(self.tokens[node])
            node = self.parents[node]
        return tuple(reversed(path))

    def tree(self, root: int) -> DraftTree:
        kept = sorted(self.best())
        renumbered = {node: index for index, node in enumerate(kept, start=1)}
        return DraftTree(
            tokens=(root, *(self.tokens[node] for node in kept)),
            parents=(-1, *(renumbered.get(self.parents[node], 0) for node in kept)),
        )


def grow(guesser: Guesser, roots: Sequence[int], limits: Sequence[TreeLimits], frame: Frame) -> list[DraftTree]:
    """One tree per sequence below its last known token; one call of guesser and frame per level for all of them."""
    plants = [_Plant(limits=limit) for limit in limits]
    alive = [seed for seed, limit in enumerate(limits) if limit.nodes > 1 and limit.depth >= 1 and limit.width >= 1]
    if alive:
        level = [_Sprout(seed=seed, node=ROOT) for seed in alive]
        _add_children(plants, level, guesser.first()[alive], guesser.vocabulary, frame)
    starts = [0] * len(plants)
    while leaves := _leaves(plants, starts):
        starts = [len(plant.tokens) for plant in plants]
        logits_RV = guesser.deeper(leaves)  # the device computes while the grammar is asked
        level = [_Sprout(seed=leaf.seed, node=leaf.node) for leaf in leaves]
        _add_children(plants, level, logits_RV, guesser.vocabulary, frame)
    return [plant.tree(root) for plant, root in zip(plants, roots, strict=True)]


class _Sprout(NamedTuple):
    seed: int
    node: int


def _leaves(plants: Sequence[_Plant], starts: Sequence[int]) -> list[Leaf]:
    return [
        Leaf(seed=seed, node=node, parent=plant.parents[node], token=plant.tokens[node], depth=plant.depths[node])
        for seed, (plant, start) in enumerate(zip(plants, starts, strict=True))
        for node in plant.level(start)
    ]


def _add_children(
    plants: Sequence[_Plant],
    level: Sequence[_Sprout],
    logits_RV: torch.Tensor,
    vocabulary: DraftVocabulary,
    frame: Frame,
) -> None:
    followings = frame.follow([Place(seed=seed, path=plants[seed].path(node)) for seed, node in level])
    alive = [row for row, following in enumerate(followings) if not following.ended]
    if not alive:
        return
    found = vocabulary.most_likely(
        logits_RV if len(alive) == len(level) else logits_RV[alive],
        [followings[row].mask for row in alive],
        [plants[level[row].seed].limits.width for row in alive],
    )
    for row, guesses in zip(alive, found, strict=True):
        plants[level[row].seed].add(level[row].node, guesses)
