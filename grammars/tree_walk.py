"""A matcher along the nodes of a draft tree: which guesses are legal, and the mask at every node.

Invariant: the matcher is left in the state in which it was found.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from decoding.masks import MaskRow
from decoding.tree import DraftTree
from grammars.protocol import Matcher


def legal_nodes(matcher: Matcher, tree: DraftTree, *, drawn: Collection[int] = ()) -> list[int]:
    """The nodes, ascending, that the grammar allows; what hangs below a forbidden one is not among them.

    The children of nodes in ``drawn`` are, even where they are forbidden themselves, unless the text ends before them.
    """
    children = tree.children()
    kept = [0]

    def visit(node: int) -> list[int]:
        if not children[node] or matcher.is_finished:
            return []
        row = matcher.mask()
        legal = [child for child in children[node] if tree.tokens[child] in row]
        kept.extend(children[node] if node in drawn else legal)
        return legal

    _walk(matcher, tree, visit)
    return sorted(kept)


def masks(matcher: Matcher, tree: DraftTree) -> list[MaskRow | None]:
    """Legal next tokens at every node; None where nothing is drawn.

    That is at a node that ends the text, at a forbidden one, and below either.
    """
    children = tree.children()
    rows: list[MaskRow | None] = [None] * len(tree)

    def visit(node: int) -> list[int]:
        if matcher.is_finished:
            return []
        row = rows[node] = matcher.mask()
        return [child for child in children[node] if tree.tokens[child] in row]

    _walk(matcher, tree, visit)
    return rows


def _walk(matcher: Matcher, tree: DraftTree, visit: Callable[[int], Sequence[int]]) -> None:
    """Depth first from node 0; ``visit`` finds the matcher after a node and returns the children to enter."""
    pending: list[int | None] = [*reversed(visit(0))]
    while pending:
        node = pending.pop()
        if node is None:  # leave the node that was entered last
            matcher.rollback(1)
            continue
        matcher.advance(tree.tokens[node])
        pending += [None, *reversed(visit(node))]
