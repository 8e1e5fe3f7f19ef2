"""Heads as sources of logits for `drafters.trees.growth`.

Invariant: such a source lives for one growth; what outlives it are the head's weights and the committed part of its
cache.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch

from drafters.heads.attention import HeadCache, Pass
from drafters.heads.base import GuessedPairs, RecurrentHead
from drafters.heads.medusa import MedusaHeads
from drafters.trees.choosing import DraftVocabulary
from drafters.trees.plants import Leaf


class RecurrentLogits:
    """A head that is fed its own states (EAGLE, MTP): a level of the tree is one pass."""

    def __init__(
        self,
        head: RecurrentHead,
        cache: HeadCache,
        vocabulary: DraftVocabulary,
        *,
        sequence_ids: Sequence[int],
        states_SE: torch.Tensor,
        positions: Sequence[int],
    ) -> None:
        """A growth below the last known tokens of some sequences.

        Args:
            head: with its committed pairs in ``cache`` up to each last known token.
            cache: guesses are written behind the committed pairs.
            vocabulary: of the head.
            sequence_ids: of the cache, one per tree.
            states_SE: what `RecurrentHead.extend` returned for each last known token.
            positions: of the last known tokens, the first token of a text having 0.
        """
        self._head = head
        self._cache = cache
        self._vocabulary = vocabulary
        self._sequence_ids = sequence_ids
        self._positions = positions
        self._roots_SE = states_SE
        self._states_RE = states_SE
        self._rows: dict[tuple[int, int], int] = {(seed, 0): seed for seed in range(len(sequence_ids))}
        self._numbers: dict[tuple[int, int], int] = {}
        self._counts: Counter[int] = Counter()

    @property
    def vocabulary(self) -> DraftVocabulary:
        """See `drafters.trees.growth.DraftLogits`."""
        return self._vocabulary

    @property
    def reach(self) -> None:
        """See `drafters.trees.growth.DraftLogits`."""
        return

    def first(self) -> torch.Tensor:
        """See `drafters.trees.growth.DraftLogits`."""
        return self._head.logits(self._roots_SE)

    def deeper(self, leaves: Sequence[Leaf]) -> torch.Tensor:
        """See `drafters.trees.growth.DraftLogits`."""
        parents: dict[int, list[int]] = {}
        for leaf in leaves:
            parents.setdefault(leaf.seed, []).append(self._numbers.get((leaf.seed, leaf.parent), -1))
        for leaf in leaves:
            self._numbers[leaf.seed, leaf.node] = self._counts[leaf.seed]
            self._counts[leaf.seed] += 1
        device = self._states_RE.device
        rows = torch.tensor([self._rows[leaf.seed, leaf.parent] for leaf in leaves], device=device)
        pairs = GuessedPairs(
            rows=Pass(
                sequence_ids=tuple(self._sequence_ids[seed] for seed in parents),
                counts=tuple(len(numbers) for numbers in parents.values()),
                parents=tuple(tuple(numbers) for numbers in parents.values()),
            ),
            tokens_T=torch.tensor([leaf.token for leaf in leaves], device=device),
            # A pair has the position of the token before its own.
            positions_T=torch.tensor([self._positions[leaf.seed] + leaf.depth - 1 for leaf in leaves], device=device),
            states_TE=self._states_RE.index_select(0, rows),
        )
        self._states_RE = self._head.expand(pairs, self._cache)
        self._rows = {(leaf.seed, leaf.node): row for row, leaf in enumerate(leaves)}
        asked = [row for row, leaf in enumerate(leaves) if leaf.asked]
        return self._head.logits(self._states_RE if len(asked) == len(leaves) else self._states_RE[asked])


class MedusaLogits:
    """Medusa heads: every node of depth d has the logits of head d, masked by what may follow the node itself."""

    def __init__(self, heads: MedusaHeads, vocabulary: DraftVocabulary, hidden_SE: torch.Tensor) -> None:
        """``hidden_SE``: of the tokens before the last known ones, after the target's final norm."""
        self._heads = heads
        self._vocabulary = vocabulary
        self._hidden_SE = hidden_SE

    @property
    def vocabulary(self) -> DraftVocabulary:
        """See `drafters.trees.growth.DraftLogits`."""
        return self._vocabulary

    @property
    def reach(self) -> int:
        """See `drafters.trees.growth.DraftLogits`: head j speaks about the children of depth j."""
        return self._heads.num_heads - 1

    def first(self) -> torch.Tensor:
        """See `drafters.trees.growth.DraftLogits`."""
        return self._heads.logits(0, self._hidden_SE)

    def deeper(self, leaves: Sequence[Leaf]) -> torch.Tensor:
        """See `drafters.trees.growth.DraftLogits`; a sequence's row is computed once, whatever asks for it."""
        asked = [leaf.seed for leaf in leaves if leaf.asked]
        row_of = {seed: row for row, seed in enumerate(dict.fromkeys(asked))}
        logits_SV = self._heads.logits(leaves[0].depth, self._hidden_SE[list(row_of)])
        return logits_SV[[row_of[seed] for seed in asked]]
