"""Sample, then walk: the lossless verifier.

The target's token is drawn at every node of a tree from that node's own constrained distribution; the walk descends
while a child carries the drawn token. What it commits is what drawing one token after the other would have given,
because a node's draw depends on its path alone. (Sampling-based tree verification as in SpecInfer, Miao et al. 2024,
with the draw shared by all children.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from decoding.tree import DraftTree


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """Outcome of verification: nodes whose KV stays, and the tokens that follow the root.

    ``nodes[0] == 0``; ``tokens[i]`` was drawn at ``nodes[i]``, so that ``len(tokens) == len(nodes)`` and the last token
    is the one that no node carried (the bonus token).
    """

    nodes: tuple[int, ...]
    tokens: tuple[int, ...]


def walk(tree: DraftTree, drawn: Sequence[int]) -> Walk:
    """Descend from node 0 along drawn tokens.

    ``drawn[i]`` is the target's token at node i, or a number that is no token id where it has none: no child carries
    that, so the walk ends there.
    """
    assert len(drawn) == len(tree)
    children = tree.children()
    nodes, tokens = [0], [drawn[0]]
    while True:
        step = next((child for child in children[nodes[-1]] if tree.tokens[child] == tokens[-1]), None)
        if step is None:
            return Walk(nodes=tuple(nodes), tokens=tuple(tokens))
        nodes.append(step)
        tokens.append(drawn[step])
