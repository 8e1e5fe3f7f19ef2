"""Where the grammar branches into few texts, each of them; where it forces one, other common spellings of it.

Enum values, keys, ``true`` beside ``false``, closing an array or going on: siblings of one tree, of which the target
takes one. Invariant: every guess is a legal token.
"""

from __future__ import annotations

from collections.abc import Sequence

from drafters.growing import GrowingTree
from drafters.source import grow_tips
from drafters.spelling import Speller

CONTEXT_TOKENS = 6
"""Tokens before the text that are spelled again with it."""
TEXT_BYTES = 32
"""Of each text, so much is drafted."""


class AlternativesSource:
    """Branches and spellings as siblings."""

    name = "alternatives"

    def __init__(self, speller: Speller) -> None:
        """``speller`` may be shared with others."""
        self._speller = speller

    def grow(self, trees: Sequence[GrowingTree]) -> None:
        """See `drafters.source.Source`."""
        grow_tips(self, self.name, [tree for tree in trees if tree.context.matcher is not None])

    def observe(self, sequence_id: int, tokens: Sequence[int]) -> None:
        """Nothing to learn."""

    def forget(self, sequence_id: int) -> None:
        """Nothing to drop."""

    def guess(self, tree: GrowingTree, node: int) -> list[Sequence[int]]:
        """Runs that begin differently, with an equal share of the room for each."""
        matcher = tree.matcher(node)
        if matcher is None or matcher.is_finished:
            return []
        before = self._speller.bytes_before(tree.tail(node, CONTEXT_TOKENS))
        runs: dict[int, Sequence[int]] = {}
        for text in matcher.branches(TEXT_BYTES):
            for run in (self._speller.spell(before, text), self._speller.spell(b"", text), self._speller.longest(text)):
                if run:
                    runs.setdefault(run[0], run)
        share = max(1, tree.room // max(1, min(tree.width, len(runs))))
        return [run[:share] for run in list(runs.values())[: tree.width]]
