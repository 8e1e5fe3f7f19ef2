"""Rejection sampling: the verifier for drafters that sample.

A child that was drawn from the draft's distribution q is accepted with probability min(1, p / q); where it is rejected,
p becomes the normalised max(0, p - q), and the next sibling, drawn from q without the ones before it, is tried
(Leviathan et al. 2023; Chen et al. 2023; without replacement: Jeon et al. 2024). What is committed follows p exactly,
whatever q is, as long as q says truly how the children were drawn. A guess without a distribution counts as drawn from
a point mass, so that it is accepted with the target's probability. Invariant: the noise of acceptance, of the
residual's draw and of drafting are independent streams of (seed, sample index, position).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from decoding.distribution import Distribution
from decoding.keyed import Bits, mix, row_key, strides, uniform
from decoding.tree import DraftTree
from decoding.verify import Walk

DRAFTING = b"draft"
"""Stream of the noise that drafters draw their guesses with."""
_ACCEPTING = b"accept"
_DRAWING = b"residual"


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """What a sample's noise is keyed by: ``position`` is the absolute position of the token after node 0."""

    seed: int
    sample_index: int
    position: int

    def at(self, depth: int, stream: bytes) -> int:
        """The key of one stream for the token after a node of this depth."""
        return row_key(self.seed, self.sample_index, self.position + depth, stream)


def accept_or_reject(
    tree: DraftTree,
    proposals: Mapping[int, Distribution],
    targets: Sequence[Distribution | None],
    keys: Keys,
    *,
    no_token: int,
) -> Walk:
    """Descend from node 0 while a child is accepted; the last token is drawn from what rejection left.

    Args:
        tree: children in the order in which they were drawn; siblings carry different tokens.
        proposals: by node, the distribution that its children were drawn from without replacement; a node that is
            missing has children that were not drawn but chosen, whatever the noise.
        targets: by node, the target's distribution; None where no token is legal, which ends the walk with
            ``no_token``.
        keys: of the noise.
        no_token: a number that is no token id.
    """
    assert len(targets) == len(tree)
    children = tree.children()
    nodes: list[int] = [0]
    tokens: list[int] = []
    while True:
        node, depth = nodes[-1], len(nodes) - 1
        target = targets[node]
        if target is None:
            return Walk(nodes=tuple(nodes), tokens=(*tokens, no_token))
        taken, left = _try(children[node], tree, proposals.get(node), target, keys.at(depth, _ACCEPTING))
        if taken is None:
            return Walk(nodes=tuple(nodes), tokens=(*tokens, *left.draw(keys.at(depth, _DRAWING))))
        nodes.append(taken)
        tokens.append(tree.tokens[taken])


def _try(
    siblings: Sequence[int], tree: DraftTree, proposal: Distribution | None, target: Distribution, key: int
) -> tuple[int | None, Distribution]:
    """The child that is accepted, or None and the distribution that rejection left."""
    thresholds = _uniforms(key, len(siblings))
    for child, threshold in zip(siblings, thresholds, strict=True):
        token = tree.tokens[child]
        drawn_from = Distribution.point(token) if proposal is None else proposal
        offered = drawn_from.of_token(token)
        assert offered > 0, "a child is not among what its proposal can draw"
        wanted = target.of_token(token)
        if threshold * offered < wanted:
            return child, target
        left = target.residual(drawn_from)
        if left is not None:
            target = left
        elif wanted:  # the two are equal but for rounding, and equal distributions never reject
            return child, target
        if proposal is not None and (proposal := proposal.without(token)) is None:
            break
    return None, target


def _uniforms(key: int, count: int) -> list[float]:
    indices: Bits = strides(np.arange(count, dtype=np.int64))
    values: list[float] = uniform(mix(np.uint64(key), indices)).tolist()
    return values
