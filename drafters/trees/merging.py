"""Growth below what other drafters have guessed in a `GrowingTree`.

Invariant: every node that growth keeps is added, because both ask the same automaton and keep to the same limits.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from decoding.errors import GrammarStateError
from decoding.rejection import DRAFTING
from drafters.growing import GrowingTree
from drafters.protocol import Draft
from drafters.trees.frame import MatcherFrame
from drafters.trees.growth import DraftLogits, grow
from drafters.trees.plants import Stem, TreeLimits


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

    Guesses are drawn where the tree's context says so, each source with noise of its own: how many another one may draw
    depends on what this one drew.
    """
    stems = [Stem(tree=tree.draft().tree, tips=tuple(tree.tips(name)), drawing=tree.context.drawing) for tree in trees]
    limits = [_limits(tree, depth, in_slots=in_slots) for tree in trees]
    frame = MatcherFrame([tree.context.matcher for tree in trees], eos_token_ids)
    drafts = grow(logits, stems, limits, frame, stream=DRAFTING + name.encode())
    for tree, stem, grown in zip(trees, stems, drafts, strict=True):
        if stem.drawing is None:
            _add(tree, grown, name)
        else:
            _add_drawn(tree, grown, name)


def _limits(tree: GrowingTree, depth: int, *, in_slots: bool) -> TreeLimits:
    width = min(tree.width, tree.room)
    if in_slots and width:
        depth = min(depth, tree.room // width)
    return TreeLimits(nodes=len(tree) + tree.room, depth=depth, width=width)


def _add(tree: GrowingTree, grown: Draft, name: str) -> None:
    try:
        for node in range(len(tree), len(grown.tree)):
            added = tree.extend(grown.tree.parents[node], grown.tree.tokens[node : node + 1], name)
            assert added == node
    except GrammarStateError:
        tree.close()


def _add_drawn(tree: GrowingTree, grown: Draft, name: str) -> None:
    """Siblings together, in the order in which they were drawn; the matcher is not asked again."""
    children = grown.tree.children()
    for node, proposal in grown.proposals.items():
        assert children[node][0] == len(tree)
        tree.extend_drawn(node, [grown.tree.tokens[child] for child in children[node]], proposal, name)
