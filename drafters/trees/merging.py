"""Growth below what other drafters have guessed in a `GrowingTree`.

Invariant: every node that growth keeps is added, because both ask the same automaton and keep to the same limits.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from decoding.errors import GrammarStateError
from decoding.tree import DraftTree
from drafters.growing import GrowingTree
from drafters.trees.frame import MatcherFrame
from drafters.trees.growth import DraftLogits, Stem, TreeLimits, grow


def grow_below(
    name: str,
    trees: Sequence[GrowingTree],
    logits: DraftLogits,
    *,
    depth: int,
    eos_token_ids: Collection[int],
    in_slots: bool = False,
) -> None:
    """Let ``logits``, whose sequences are those of ``trees``, guess up to ``depth`` tokens below each tip.

    ``eos_token_ids`` end texts that have no matcher. ``in_slots``: each node that is computed takes one of the slots
    behind node 0, of which there are no more than nodes, so that growth ends while there are slots for a whole level.
    A matcher that fails ends its own tree's growth.
    """
    stems = [Stem(tree=tree.draft().tree, tips=tuple(tree.tips(name))) for tree in trees]
    depths = [min(depth, tree.room // tree.width) if in_slots else depth for tree in trees]
    limits = [
        TreeLimits(nodes=len(tree) + tree.room, depth=deep, width=tree.width)
        for tree, deep in zip(trees, depths, strict=True)
    ]
    frame = MatcherFrame([tree.context.matcher for tree in trees], eos_token_ids)
    for tree, grown in zip(trees, grow(logits, stems, limits, frame), strict=True):
        try:
            _add(tree, grown, name)
        except GrammarStateError:
            tree.close()


def _add(tree: GrowingTree, grown: DraftTree, name: str) -> None:
    for node in range(len(tree), len(grown)):
        added = tree.extend(grown.parents[node], grown.tokens[node : node + 1], name)
        assert added == node
