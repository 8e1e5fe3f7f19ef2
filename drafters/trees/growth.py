"""Trees grown level by level from a model's logits, for the whole batch at once.

The likeliest guesses (EAGLE-2, Li et al. 2024b):

    expand    at each level the `width` most likely nodes of each sequence get their `width` most likely legal children
    re-rank   of all new nodes the most likely ones are kept, up to the sequence's limit

Guesses drawn for rejection sampling:

    expand    at each level the first `width` nodes get up to `width` legal children, drawn without replacement
    re-rank   never: dropping what was drawn because of its value would be biased

Invariant: logits and frame are asked once per level, whatever the number of sequences and the kinds of their trees.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch

from decoding.masks import MaskRow
from decoding.rejection import DRAFTING
from drafters.protocol import Draft
from drafters.trees.choosing import DraftVocabulary
from drafters.trees.frame import Frame, Place
from drafters.trees.plants import DrawnPlant, Leaf, LikelyPlant, Stem, TreeLimits

Plant = LikelyPlant | DrawnPlant
AnyPlant = TypeVar("AnyPlant", LikelyPlant, DrawnPlant)


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


class _Wanted(NamedTuple, Generic[AnyPlant]):
    """Children that a node of a level is to get."""

    row: int
    plant: AnyPlant
    node: int
    mask: MaskRow | None


def grow(
    logits: DraftLogits,
    stems: Sequence[Stem],
    limits: Sequence[TreeLimits],
    frame: Frame,
    *,
    stream: bytes = DRAFTING,
) -> list[Draft]:
    """One tree per sequence, whose first nodes are its stem; one call of logits and frame per level for all of them.

    ``stream`` names the noise of drawn guesses; growths below the same node 0 need different ones.
    """
    plants = [_plant(stem, limit, logits.reach, stream) for stem, limit in zip(stems, limits, strict=True)]
    rooted = [(seed, 0) for seed, plant in enumerate(plants) if 0 in plant.tips]
    if rooted:
        logits_SV = logits.first()[[seed for seed, _ in rooted]]
        _add_children(plants, rooted, logits_SV, logits.vocabulary, frame)
    for depth in itertools.count(1):
        leaves = [leaf for seed, plant in enumerate(plants) for leaf in plant.leaves(seed, depth)]
        if not leaves:
            return [plant.draft() for plant in plants]
        logits_RV = logits.deeper(leaves)  # the device computes while the grammar is asked
        level = [(leaf.seed, leaf.node) for leaf in leaves if leaf.asked]
        _add_children(plants, level, logits_RV, logits.vocabulary, frame)
    raise AssertionError  # every depth of a tree is finite


def _plant(stem: Stem, limits: TreeLimits, reach: int | None, stream: bytes) -> Plant:
    if stem.drawing is None:
        return LikelyPlant(stem, limits, reach)
    return DrawnPlant(stem, limits, reach, drawing=stem.drawing, stream=stream)


def _add_children(
    plants: Sequence[Plant],
    level: Sequence[tuple[int, int]],
    logits_RV: torch.Tensor,
    vocabulary: DraftVocabulary,
    frame: Frame,
) -> None:
    """Children of the nodes (sequence, node) of one level."""
    if not level:
        return
    followings = frame.follow([Place(seed=seed, path=plants[seed].path(node)) for seed, node in level])
    likely: list[_Wanted[LikelyPlant]] = []
    drawn: list[_Wanted[DrawnPlant]] = []
    for row, ((seed, node), following) in enumerate(zip(level, followings, strict=True)):
        plant = plants[seed]
        if following.ended:
            continue
        if isinstance(plant, LikelyPlant):
            likely.append(_Wanted(row, plant, node, following.mask))
        else:
            drawn.append(_Wanted(row, plant, node, following.mask))
    if likely:
        widths = [wanted.plant.limits.width for wanted in likely]
        for wanted, guesses in zip(likely, vocabulary.most_likely(*_rows(likely, logits_RV), widths), strict=True):
            wanted.plant.add(wanted.node, guesses)
    if drawn:
        temperatures = [wanted.plant.drawing.temperature for wanted in drawn]
        proposals = vocabulary.distributions(*_rows(drawn, logits_RV), temperatures)
        for wanted_drawn, proposal in zip(drawn, proposals, strict=True):
            if proposal is not None:
                wanted_drawn.plant.draw(wanted_drawn.node, proposal)


def _rows(wanted: Sequence[_Wanted[Any]], logits_RV: torch.Tensor) -> tuple[torch.Tensor, list[MaskRow | None]]:
    rows = [one.row for one in wanted]
    return logits_RV if len(rows) == len(logits_RV) else logits_RV[rows], [one.mask for one in wanted]
