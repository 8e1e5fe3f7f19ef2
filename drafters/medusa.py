"""The drafter `medusa`: heads on the hidden state from which the target drew the last known token.

Invariant: a sequence whose newest hidden state was not shown gets no guess, rather than a guess from an old one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

from drafters.growing import GrowingTree
from drafters.heads.medusa import MedusaHeads
from drafters.heads.target import FeatureSpec
from drafters.trees.choosing import DraftVocabulary
from drafters.trees.logits import MedusaLogits
from drafters.trees.merging import grow_below


class MedusaSource:
    """`drafters.source.Source` with `MedusaHeads`."""

    name = "medusa"

    def __init__(self, heads: MedusaHeads, *, vocab_size: int, eos_token_ids: Collection[int]) -> None:
        """``vocab_size`` is the target's; ``eos_token_ids`` end texts without a matcher."""
        self._heads = heads
        self._vocabulary = DraftVocabulary(vocab_size, None)
        self._eos_token_ids = frozenset(eos_token_ids)
        self._hidden: dict[int, tuple[int, torch.Tensor]] = {}

    @property
    def features(self) -> FeatureSpec:
        """Which hidden states `show` expects."""
        return self._heads.features

    def show(self, sequence_ids: Sequence[int], positions: Sequence[int], hidden_SE: torch.Tensor) -> None:
        """Take in the newest hidden state of each sequence and the position of the token that it belongs to."""
        for sequence_id, position, hidden_E in zip(sequence_ids, positions, hidden_SE.clone(), strict=True):
            self._hidden[sequence_id] = (position, hidden_E)

    @torch.inference_mode()
    def grow(self, trees: Sequence[GrowingTree]) -> None:
        """See `drafters.source.Source`. A guess reaches as deep as there are heads."""
        ready = [(tree, hidden_E) for tree in trees if (hidden_E := self._newest(tree)) is not None]
        if not ready:
            return
        logits = MedusaLogits(self._heads, self._vocabulary, torch.stack([hidden_E for _, hidden_E in ready]))
        chosen, depth = [tree for tree, _ in ready], self._heads.num_heads
        grow_below(self.name, chosen, logits, depth=depth, eos_token_ids=self._eos_token_ids)

    def observe(self, sequence_id: int, tokens: Sequence[int]) -> None:
        """Nothing to learn."""

    def forget(self, sequence_id: int) -> None:
        """Drop the hidden state."""
        self._hidden.pop(sequence_id, None)

    def _newest(self, tree: GrowingTree) -> torch.Tensor | None:
        position, hidden_E = self._hidden.get(tree.context.sequence_id, (-1, None))
        return hidden_E if position == len(tree.context.tokens) - 2 else None
