"""The drafters `eagle` (EAGLE-1/2, EAGLE-3, speculators) and `mtp`: a recurrent head that follows every sequence.

The engine shows each committed token with the target's feature of the token before it; the head keeps keys and values
of these pairs and the state of the last one, below which trees grow. Invariant: a sequence whose last known token was
not shown gets no guess, rather than a guess from a stale state.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch

from drafters.growing import GrowingTree
from drafters.heads.attention import HeadCache, Pass
from drafters.heads.base import CommittedPairs, RecurrentHead
from drafters.heads.target import FeatureSpec
from drafters.trees.choosing import DraftVocabulary
from drafters.trees.logits import RecurrentLogits
from drafters.trees.merging import grow_below

EAGLE, MTP = "eagle", "mtp"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShownTokens:
    """Committed tokens, packed over ragged sequences.

    Attributes:
        sequence_ids: distinct, one per sequence.
        starts: position of the first token of each, at least 1: the first token of a text has no feature before it.
        counts: tokens of each, at least 1.
        tokens_T: int64.
        features_TF: of the target for the token *before* each of them, as the head's `FeatureSpec` says.
    """

    sequence_ids: tuple[int, ...]
    starts: tuple[int, ...]
    counts: tuple[int, ...]
    tokens_T: torch.Tensor
    features_TF: torch.Tensor


@dataclass(slots=True, kw_only=True, eq=False)
class _Track:
    """One sequence: its cache holds the pairs of tokens ``first`` to ``last``, and ``state_E`` is the last one's."""

    first: int
    last: int
    state_E: torch.Tensor


class EagleSource:
    """`drafters.source.Source` with a `RecurrentHead`."""

    def __init__(
        self, head: RecurrentHead, cache: HeadCache, *, vocab_size: int, depth: int, eos_token_ids: Collection[int]
    ) -> None:
        """``vocab_size`` is the target's, ``depth`` the longest guess; ``eos_token_ids`` end free texts."""
        self.name = MTP if head.kind == MTP else EAGLE
        self._head = head
        self._cache = cache
        self._vocabulary = DraftVocabulary(vocab_size, head.target_ids)
        self._depth = depth
        self._eos_token_ids = frozenset(eos_token_ids)
        self._tracks: dict[int, _Track] = {}

    @property
    def features(self) -> FeatureSpec:
        """Which hidden states `show` expects."""
        return self._head.features

    @torch.inference_mode()
    def show(self, shown: ShownTokens) -> None:
        """Take in committed tokens in the order of the text.

        Tokens that were shown before replace those from there on, as after a preemption. Tokens behind a gap, as after
        a shared prefix that the target did not compute, begin anew: the head then sees nothing of the gap.
        """
        spans = list(zip(shown.sequence_ids, shown.starts, shown.counts, strict=True))
        firsts = [self._begin(sequence_id, start) for sequence_id, start, _ in spans]
        positions = [start + index - 1 for _, start, count in spans for index in range(count)]
        pairs = CommittedPairs(
            rows=Pass(sequence_ids=shown.sequence_ids, counts=shown.counts),
            tokens_T=shown.tokens_T,
            positions_T=torch.tensor(positions, device=shown.tokens_T.device),
            features_TF=shown.features_TF,
        )
        states_TE = self._head.extend(pairs, self._cache)
        row = -1
        for (sequence_id, start, count), first in zip(spans, firsts, strict=True):
            row += count
            # A copy: a view would keep the states of the whole pass.
            track = _Track(first=first, last=start + count - 1, state_E=states_TE[row].clone())
            self._tracks[sequence_id] = track

    @torch.inference_mode()
    def grow(self, trees: Sequence[GrowingTree]) -> None:
        """See `drafters.source.Source`."""
        ready = [(tree, track) for tree in trees if (track := self._track(tree)) is not None]
        if not ready:
            return
        logits = RecurrentLogits(
            self._head,
            self._cache,
            self._vocabulary,
            sequence_ids=[tree.context.sequence_id for tree, _ in ready],
            states_SE=torch.stack([track.state_E for _, track in ready]),
            positions=[track.last for _, track in ready],
        )
        chosen = [tree for tree, _ in ready]
        grow_below(self.name, chosen, logits, depth=self._depth, eos_token_ids=self._eos_token_ids)

    def observe(self, sequence_id: int, tokens: Sequence[int]) -> None:
        """Nothing to learn: `show` brings the tokens with their features."""

    def forget(self, sequence_id: int) -> None:
        """Free state, keys and values."""
        self._tracks.pop(sequence_id, None)
        self._cache.forget(sequence_id)

    def _begin(self, sequence_id: int, start: int) -> int:
        """Cut what is kept to the tokens before ``start``; the first one that then is kept."""
        assert start >= 1
        track = self._tracks.pop(sequence_id, None)
        first = start if track is None or not track.first <= start <= track.last + 1 else track.first
        self._cache.truncate(sequence_id, start - first)
        return first

    def _track(self, tree: GrowingTree) -> _Track | None:
        track = self._tracks.get(tree.context.sequence_id)
        return track if track is not None and track.last == len(tree.context.tokens) - 1 else None
