"""Several sources on one tree: forced text, then another source's guess, then forced text again.

Sources take turns in a fixed order until none of them adds anything. A source is asked once about a tip, and never
about one that it guessed itself, so that the turns end. The chooser then says which nodes are worth computing.
Invariant: how the tree of a sequence grows does not depend on which others are grown beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from drafters.choosing import Chooser
from drafters.growing import GrowingTree
from drafters.protocol import Draft, DraftContext
from drafters.source import Source


class Composition:
    """`drafters.protocol.Drafter` over sources, in the order of their turns."""

    def __init__(
        self, sources: Sequence[Source], chooser: Chooser, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """``clock`` counts seconds."""
        self._sources = tuple(sources)
        self._chooser = chooser
        self._clock = clock

    def propose(self, contexts: Sequence[DraftContext]) -> list[Draft]:
        """One draft per context."""
        choices = self._chooser.choose(contexts)
        trees = [
            GrowingTree(context, mix=choice.mix, limit=choice.limit, width=choice.width)
            for context, choice in zip(contexts, choices, strict=True)
        ]
        spent: dict[str, float] = {}
        growing = [tree for tree in trees if tree.mix and tree.room > 0]
        while growing:
            growing = self._take_turns(growing, spent)
        kept = self._chooser.prune(trees, spent)
        return [tree.draft(nodes) for tree, nodes in zip(trees, kept, strict=True)]

    def observe(self, sequence_id: int, tokens: Sequence[int], accepted: int) -> None:
        """Tell every source, and the chooser."""
        self._chooser.observe(sequence_id, tokens, accepted)
        for source in self._sources:
            source.observe(sequence_id, tokens)

    def forget(self, sequence_id: int) -> None:
        """Tell every source, and the chooser."""
        self._chooser.forget(sequence_id)
        for source in self._sources:
            source.forget(sequence_id)

    def _take_turns(self, trees: Sequence[GrowingTree], spent: dict[str, float]) -> list[GrowingTree]:
        """One turn of every source, its milliseconds added to ``spent``; the trees that grew and may grow on."""
        sizes = [len(tree) for tree in trees]
        for source in self._sources:
            wanting = [tree for tree in trees if source.name in tree.mix and tree.room > 0]
            if wanting:
                start = self._clock()
                source.grow(wanting)
                spent[source.name] = spent.get(source.name, 0.0) + 1e3 * (self._clock() - start)
        return [tree for tree, size in zip(trees, sizes, strict=True) if len(tree) > size and tree.room > 0]
