"""What the composition asks of one source of guesses, and the simple kind that guesses for one path at a time.

Invariant: a source adds to trees through `GrowingTree.extend`, which cuts what the grammar forbids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from decoding.errors import GrammarStateError
from drafters.growing import GrowingTree


class Source(Protocol):
    """A source of guesses, asked for all trees at once, so that one with a model computes them as a batch."""

    @property
    def name(self) -> str:
        """What requests call it."""
        ...

    def grow(self, trees: Sequence[GrowingTree]) -> None:
        """Add guesses below `GrowingTree.tips` of each tree, the likeliest first."""
        ...

    def observe(self, sequence_id: int, tokens: Sequence[int]) -> None:
        """Learn that ``tokens`` were committed."""
        ...

    def forget(self, sequence_id: int) -> None:
        """The sequence ended; drop what was kept for it alone."""
        ...


class Guesser(Protocol):
    """Guesses that depend on one path alone."""

    def guess(self, tree: GrowingTree, node: int) -> Sequence[Sequence[int]]:
        """Runs of tokens that may follow ``node``, the likeliest first."""
        ...


def grow_tips(guesser: Guesser, name: str, trees: Sequence[GrowingTree]) -> None:
    """`Source.grow` for a guesser. A matcher that fails ends its own tree's growth; the engine then meets the error."""
    for tree in trees:
        try:
            for node in tree.tips(name):
                if not tree.room:
                    break
                for run in guesser.guess(tree, node):
                    tree.extend(node, run, name)
        except GrammarStateError:
            tree.close()
