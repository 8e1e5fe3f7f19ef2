"""Keys and values of a draft head in the target's own slots.

    token        t_0   t_1   t_2  ...  t_n
    slot          0     1     2   ...   n
    pair          -    (t_1) (t_2) ... (t_n)       guesses of a tree have memory of their own, for one growth

The pair of a token joins it with the target's feature of the token *before* it, so that what a slot holds depends on
tokens up to its own and nothing after: the target's blocks, their sharing and the prefix cache serve the head as they
are. What is missing after a prefix hit, the feature of the last cached token, is kept with the block that it ends.
Invariant: committed pairs of an indexed block never change; who owns a slot is the block pool's affair alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from drafters.heads.attention import Pass, attend, chain_mask, tree_mask
from engine.kv_cache import KVCache, KVShape
from engine.pack import slots_of


@dataclass(slots=True, kw_only=True)
class _Lane:
    """One sequence: its block table, the tokens whose pairs are there (from 1), and its guesses.

    ``guessed`` maps a layer to the keys and values [guesses, Hk, D] of guesses, whose parents are ``parents``.
    """

    blocks: Sequence[int]
    pairs: int
    parents: list[int] = field(default_factory=list)
    guessed: dict[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)

    def with_guesses(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """All guesses' keys and values, these being the newest."""
        before = self.guessed.get(layer)
        together = (keys, values) if before is None else (torch.cat((before[0], keys)), torch.cat((before[1], values)))
        self.guessed[layer] = together
        return together

    def clear_guesses(self) -> None:
        self.parents.clear()
        self.guessed.clear()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Part:
    """One sequence's share of a pass.

    ``slots_K`` are those of its committed pairs, the rows of the pass included unless they are ``guesses``; ``visible``
    is [rows, committed pairs and guesses].
    """

    lane: _Lane
    count: int
    slots_K: torch.Tensor
    visible: torch.Tensor | None
    causal: bool
    guesses: bool


class PagedHeadCache:
    """`drafters.heads.attention.HeadCache` over the block pool's blocks."""

    def __init__(
        self,
        shape: KVShape,
        num_layers: int,
        *,
        num_blocks: int,
        feature_width: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        """``feature_width``: F, numbers of the target that the head reads for one token."""
        self._cache = KVCache((shape,) * num_layers, num_blocks, dtype, device)
        self._features_BF = torch.zeros(num_blocks, feature_width, dtype=dtype, device=device)
        self._device = device
        self._lanes: dict[int, _Lane] = {}

    @staticmethod
    def bytes_per_block(shape: KVShape, num_layers: int, *, feature_width: int, dtype: torch.dtype) -> int:
        """Memory that one block takes beside the target's."""
        return num_layers * shape.bytes_per_block(dtype) + feature_width * dtype.itemsize

    def place(self, sequence_id: int, blocks: Sequence[int], pairs: int) -> None:
        """Say where a sequence lives: its block table, and up to which token its pairs are there; guesses are gone."""
        self._lanes[sequence_id] = _Lane(blocks=blocks, pairs=pairs)

    def forget(self, sequence_id: int) -> None:
        """Drop what was said; blocks are the pool's."""
        self._lanes.pop(sequence_id, None)

    def keep_features(self, blocks: Sequence[int], features_NF: torch.Tensor) -> None:
        """Keep, with each of these full blocks, the target's feature of its last token."""
        if blocks:
            self._features_BF[torch.tensor(blocks, device=self._device)] = features_NF.to(self._features_BF.dtype)

    def feature(self, block: int) -> torch.Tensor:
        """The feature [F] of a full block's last token."""
        return self._features_BF[block]

    def copy_slots(self, sources: torch.Tensor, targets: torch.Tensor) -> None:
        """Copy slots to slots, as the target's cache does where a block is copied on write."""
        self._cache.move(sources, targets)

    def begin(self, rows: Pass) -> PagedPass:
        """See `HeadCache`."""
        parents = rows.parents or (None,) * len(rows.counts)
        parts = [self._part(*row) for row in zip(rows.sequence_ids, rows.counts, parents, strict=True)]
        return PagedPass(self._cache, parts)

    def _part(self, sequence_id: int, count: int, parents: tuple[int, ...] | None) -> _Part:
        lane = self._lanes[sequence_id]
        before = lane.pairs
        if parents is None:
            lane.clear_guesses()
            lane.pairs += count
            visible = chain_mask(before, count) if before and count > 1 else None
        else:
            if all(parent < 0 for parent in parents):
                lane.clear_guesses()  # a new tree
            lane.parents += parents
            visible = tree_mask(before, lane.parents, count)
        slots = slots_of(lane.blocks, np.arange(1, lane.pairs + 1))
        return _Part(
            lane=lane,
            count=count,
            slots_K=torch.from_numpy(slots).to(self._device),
            visible=None if visible is None else visible.to(self._device),
            causal=parents is None and not before,
            guesses=parents is not None,
        )


class PagedPass:
    """`drafters.heads.attention.PassAttention` over a `PagedHeadCache`."""

    def __init__(self, cache: KVCache, parts: list[_Part]) -> None:
        self._cache = cache
        self._parts = parts
        self._counts = [part.count for part in parts]
        committed = [part.slots_K[-part.count :] for part in parts if not part.guesses]
        self._slots_T = torch.cat(committed) if committed else None

    def attend(
        self, layer: int, q_THD: torch.Tensor, k_TKD: torch.Tensor, v_TKD: torch.Tensor, scale: float
    ) -> torch.Tensor:
        """See the protocol. One call of torch's attention per sequence."""
        if self._slots_T is not None:
            self._cache.write(layer, self._slots_T, k_TKD, v_TKD)
        outputs = []
        pieces = zip(self._parts, *(torch.split(x, self._counts) for x in (q_THD, k_TKD, v_TKD)), strict=True)
        for part, q_QHD, k_QKD, v_QKD in pieces:
            keys = self._cache.keys[layer].flatten(0, 1).index_select(0, part.slots_K)
            values = self._cache.values[layer].flatten(0, 1).index_select(0, part.slots_K)
            if part.guesses:
                guessed_keys, guessed_values = part.lane.with_guesses(layer, k_QKD, v_QKD)
                keys, values = torch.cat((keys, guessed_keys)), torch.cat((values, guessed_values))
            outputs.append(attend(q_QHD, keys, values, scale=scale, visible=part.visible, causal=part.causal))
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)
