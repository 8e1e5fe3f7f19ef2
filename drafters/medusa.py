"""`medusa`: heads that guess the next tokens from one hidden state of the target, as a source.

Invariant: the hidden state that is kept of a sequence is that of its last computed token, or none is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from drafters.companion import Computed, TargetStates
from drafters.growing import GrowingTree
from drafters.heads.medusa import MedusaHeads
from drafters.heads.target import FeatureSpec
from drafters.trees.choosing import DraftVocabulary
from drafters.trees.logits import MedusaLogits
from drafters.trees.merging import grow_below


class MedusaSource:
    """`drafters.source.Source` and `drafters.companion.Companion` around `MedusaHeads`."""

    name = "medusa"

    def __init__(self, heads: MedusaHeads, *, vocab_size: int, num_tokens: int, eos_token_ids: Sequence[int]) -> None:
        """``vocab_size`` is the width of the target's logits, ``num_tokens`` its tokenizer's true size."""
        self._heads = heads
        self._vocabulary = DraftVocabulary(vocab_size, None, num_tokens=num_tokens)
        self._eos_token_ids = tuple(eos_token_ids)
        self._hidden: dict[int, tuple[int, torch.Tensor]] = {}
        """By sequence: the position of the last computed token, and its hidden state [E]."""

    @property
    def features(self) -> FeatureSpec:
        """What the heads read of the target."""
        return self._heads.features

    @torch.inference_mode()
    def grow(self, trees: Sequence[GrowingTree]) -> None:
        """Guess below the leaves of each tree, as deep as there are heads."""
        able = [tree for tree in trees if self._knows(tree)]
        if able:
            hidden_SE = torch.stack([self._hidden[tree.context.sequence_id][1] for tree in able])
            logits = MedusaLogits(self._heads, self._vocabulary, hidden_SE)
            grow_below(self.name, able, logits, depth=self._heads.num_heads, eos_token_ids=self._eos_token_ids)

    def observe(self, sequence_id: int, tokens: Sequence[int]) -> None:
        """Nothing to learn."""

    def follow(self, computed: Sequence[Computed], states: TargetStates) -> None:
        """See `Companion`."""
        for part in computed:
            last = part.first + len(part.rows) - 1
            self._hidden[part.sequence_id] = last, states.features(self.features, part.rows[-1:])[0]

    def fork(self, leader_id: int, follower_id: int) -> None:
        """See `Companion`."""
        if leader_id in self._hidden:
            self._hidden[follower_id] = self._hidden[leader_id]

    def forget(self, sequence_id: int) -> None:
        """See `Companion`."""
        self._hidden.pop(sequence_id, None)

    def copy_slots(self, sources: torch.Tensor, targets: torch.Tensor) -> None:
        """There is nothing in slots."""

    def _knows(self, tree: GrowingTree) -> bool:
        position, _ = self._hidden.get(tree.context.sequence_id, (-1, None))
        return position == len(tree.context.tokens) - 2 and not tree.has_guess_of(self.name)
