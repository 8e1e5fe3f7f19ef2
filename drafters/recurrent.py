"""`eagle` and `mtp`: a head that is fed its own states, as a source of guesses.

    known tokens     t_0 ... t_r   t_r+1 ... t_n         t_n is node 0
    pairs there       1  ...  r
    features kept           h_r    h_r+1 ... h_n-1       with t_r+1 ... t_n they make the pairs that are missing

The pairs that are missing are computed with the next proposal, whose pass they share; those that fill a block at once,
so that the prefix cache never offers a block without them. Invariant: the pairs of tokens 1 to `ready` are in the
cache, and the features of positions from `ready` on are at hand.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from drafters.companion import Computed, SlotCache, TargetStates
from drafters.growing import GrowingTree
from drafters.heads.attention import Pass
from drafters.heads.base import CommittedPairs, RecurrentHead
from drafters.heads.target import FeatureSpec
from drafters.trees.choosing import DraftVocabulary
from drafters.trees.logits import RecurrentLogits
from drafters.trees.merging import grow_below


@dataclass(slots=True, kw_only=True)
class _Track:
    """What the head has of one sequence; see the drawing."""

    ready: int
    features: list[torch.Tensor] = field(default_factory=list)
    state_E: torch.Tensor | None = None
    """Of the pair of token `ready`, where it was computed for this sequence."""

    @property
    def end(self) -> int:
        """The first position whose feature is missing."""
        return self.ready + sum(map(len, self.features))

    def take(self, upto: int) -> torch.Tensor:
        """Features of positions `ready` to ``upto - 1``, which are dropped: pairs up to token ``upto`` follow."""
        whole = torch.cat(self.features)
        count = upto - self.ready
        self.features = [whole[count:]] if count < len(whole) else []
        self.ready = upto
        return whole[:count]

    def copy(self) -> _Track:
        return replace(self, features=list(self.features))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Missing:
    """Pairs of one sequence to compute, up to token ``upto``."""

    sequence_id: int
    tokens: Sequence[int]
    blocks: Sequence[int]
    upto: int


class RecurrentSource:
    """`drafters.source.Source` and `drafters.companion.Companion` around a `RecurrentHead`."""

    def __init__(
        self,
        name: str,
        head: RecurrentHead,
        cache: SlotCache,
        *,
        vocab_size: int,
        num_tokens: int,
        eos_token_ids: Sequence[int],
        block_size: int,
        depth: int,
    ) -> None:
        """A source of guesses up to ``depth`` tokens long.

        ``vocab_size`` is the width of the target's logits, ``num_tokens`` its tokenizer's true size, ``block_size`` the
        slots of a block.
        """
        self.name = name
        self._head = head
        self._cache = cache
        self._vocabulary = DraftVocabulary(vocab_size, head.target_ids, num_tokens=num_tokens)
        self._eos_token_ids = tuple(eos_token_ids)
        self._block_size = block_size
        self._depth = depth
        self._tracks: dict[int, _Track] = {}

    @property
    def features(self) -> FeatureSpec:
        """What the head reads of the target."""
        return self._head.features

    @torch.inference_mode()
    def grow(self, trees: Sequence[GrowingTree]) -> None:
        """Guess below the leaves of each tree that the head has kept pace with."""
        able = [tree for tree in trees if self._is_up_to_date(tree)]
        if not able:
            return
        contexts = [tree.context for tree in able]
        self._extend(
            [
                _Missing(
                    sequence_id=context.sequence_id,
                    tokens=context.tokens,
                    blocks=context.blocks,
                    upto=len(context.tokens) - 1,
                )
                for context in contexts
            ]
        )
        states = [self._tracks[context.sequence_id].state_E for context in contexts]
        logits = RecurrentLogits(
            self._head,
            self._cache,
            self._vocabulary,
            sequence_ids=[context.sequence_id for context in contexts],
            states_SE=torch.stack([state_E for state_E in states if state_E is not None]),
            positions=[len(context.tokens) - 1 for context in contexts],
        )
        grow_below(self.name, able, logits, depth=self._depth, eos_token_ids=self._eos_token_ids)

    def observe(self, sequence_id: int, tokens: Sequence[int]) -> None:
        """Nothing to learn: `follow` tells what was computed."""

    def follow(self, computed: Sequence[Computed], states: TargetStates) -> None:
        """See `Companion`."""
        missing = []
        for part in computed:
            features_NF = states.features(self.features, part.rows)
            self._keep_boundaries(part, features_NF)
            track = self._track(part)
            if track is None:
                self._tracks.pop(part.sequence_id, None)
                continue
            self._tracks[part.sequence_id] = track
            track.features.append(features_NF)
            full = track.end // self._block_size * self._block_size - 1
            if full > track.ready:
                missing.append(
                    _Missing(sequence_id=part.sequence_id, tokens=part.tokens, blocks=part.blocks, upto=full)
                )
        self._extend(missing)

    def fork(self, leader_id: int, follower_id: int) -> None:
        """See `Companion`."""
        if (track := self._tracks.get(leader_id)) is not None:
            self._tracks[follower_id] = track.copy()

    def forget(self, sequence_id: int) -> None:
        """See `Companion`."""
        self._tracks.pop(sequence_id, None)
        self._cache.forget(sequence_id)

    def copy_slots(self, sources: torch.Tensor, targets: torch.Tensor) -> None:
        """See `Companion`."""
        self._cache.copy_slots(sources, targets)

    def _is_up_to_date(self, tree: GrowingTree) -> bool:
        track = self._tracks.get(tree.context.sequence_id)
        known = len(tree.context.tokens) - 1
        return track is not None and track.end == known and not tree.has_guess_of(self.name)

    def _track(self, part: Computed) -> _Track | None:
        """The track that these features continue; a fresh one where the sequence starts (again).

        None where the feature before the first one is not known.
        """
        track = self._tracks.get(part.sequence_id)
        if track is not None and track.end == part.first:
            return track
        if part.first == 0:
            return _Track(ready=0)
        if part.first % self._block_size:
            return None
        before = self._cache.feature(part.blocks[part.first // self._block_size - 1])
        return _Track(ready=part.first - 1, features=[before.unsqueeze(0)])

    def _keep_boundaries(self, part: Computed, features_NF: torch.Tensor) -> None:
        size, stop = self._block_size, part.first + len(part.rows)
        last = [position for position in range(part.first, stop) if position % size == size - 1]
        if last:
            blocks = [part.blocks[position // size] for position in last]
            self._cache.keep_features(blocks, features_NF[[position - part.first for position in last]])

    def _extend(self, missing: Sequence[_Missing]) -> None:
        """Compute the pairs that are missing, in one pass."""
        missing = [part for part in missing if self._tracks[part.sequence_id].ready < part.upto]
        if not missing:
            return
        tokens: list[int] = []
        positions: list[int] = []
        counts: list[int] = []
        features: list[torch.Tensor] = []
        for part in missing:
            track = self._tracks[part.sequence_id]
            first = track.ready + 1
            self._cache.place(part.sequence_id, part.blocks, track.ready)
            features.append(track.take(part.upto))
            tokens += part.tokens[first : part.upto + 1]
            positions += range(first - 1, part.upto)
            counts.append(part.upto + 1 - first)
        features_TF = torch.cat(features)
        device = features_TF.device
        states_TE = self._head.extend(
            CommittedPairs(
                rows=Pass(sequence_ids=tuple(part.sequence_id for part in missing), counts=tuple(counts)),
                tokens_T=torch.tensor(tokens, device=device),
                positions_T=torch.tensor(positions, device=device),
                features_TF=features_TF,
            ),
            self._cache,
        )
        ends = itertools.accumulate(counts)
        for part, end in zip(missing, ends, strict=True):
            # A copy: a view would keep the states of the whole pass.
            self._tracks[part.sequence_id].state_E = states_TE[end - 1].clone()
