"""Keys and values of a head in memory of their own, contiguous per sequence.

        | committed pairs ... | guess 0 | guess 1 | ... | room |
          0           length-1   length    length+1

The next committed pass overwrites the guesses. Invariant: the first `length` pairs of a sequence never change; cutting
a sequence (`truncate`) and computing the same pairs again gives the same cache.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from drafters.heads.attention import Pass, attend, chain_mask, tree_mask
from drafters.heads.layers import LayerShape

_FIRST_ROOM = 64


@dataclass(slots=True, kw_only=True, eq=False)
class _Lane:
    """One sequence: keys and values [layers, room, Hk, D], committed pairs, and the parents of its guesses."""

    keys: torch.Tensor
    values: torch.Tensor
    length: int = 0
    parents: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Part:
    """One sequence's share of a pass: its rows start at ``start`` of its lane; ``visible`` is [rows, start + rows]."""

    lane: _Lane
    count: int
    start: int
    visible: torch.Tensor | None
    causal: bool


class ContiguousCache:
    """`drafters.heads.attention.HeadCache` without paging: each sequence's memory doubles when it is full."""

    def __init__(self, shape: LayerShape, num_layers: int, *, dtype: torch.dtype, device: torch.device) -> None:
        self._row_shape = (num_layers, 0, shape.num_kv_heads, shape.head_dim)
        self._dtype = dtype
        self._device = device
        self._lanes: dict[int, _Lane] = {}

    def length(self, sequence_id: int) -> int:
        """Committed pairs of a sequence; 0 for an unknown one."""
        lane = self._lanes.get(sequence_id)
        return 0 if lane is None else lane.length

    def truncate(self, sequence_id: int, length: int) -> None:
        """Keep only the first ``length`` committed pairs, and no guess."""
        lane = self._lanes.get(sequence_id)
        if lane is not None:
            lane.length = min(lane.length, length)
            lane.parents.clear()

    def forget(self, sequence_id: int) -> None:
        """Free a sequence's memory."""
        self._lanes.pop(sequence_id, None)

    @property
    def bytes_used(self) -> int:
        """Memory of all lanes, room included."""
        return sum(lane.keys.nbytes + lane.values.nbytes for lane in self._lanes.values())

    def begin(self, rows: Pass) -> ContiguousPass:
        """See `HeadCache`."""
        parents = rows.parents or (None,) * len(rows.counts)
        parts = [self._part(*row) for row in zip(rows.sequence_ids, rows.counts, parents, strict=True)]
        return ContiguousPass(parts)

    def _part(self, sequence_id: int, count: int, parents: tuple[int, ...] | None) -> _Part:
        lane = self._lanes.get(sequence_id) or self._new_lane(sequence_id)
        if parents is None:
            start = lane.length
            self._make_room(lane, start + count)
            lane.parents.clear()
            lane.length += count
            return _Part(
                lane=lane,
                count=count,
                start=start,
                visible=chain_mask(start, count).to(self._device) if start and count > 1 else None,
                causal=not start,
            )
        if all(parent < 0 for parent in parents):
            lane.parents.clear()  # a new tree
        start = lane.length + len(lane.parents)
        self._make_room(lane, start + count)
        lane.parents += parents
        visible = tree_mask(lane.length, lane.parents, count).to(self._device)
        return _Part(lane=lane, count=count, start=start, visible=visible, causal=False)

    def _new_lane(self, sequence_id: int) -> _Lane:
        empty = torch.empty(self._row_shape, dtype=self._dtype, device=self._device)
        self._lanes[sequence_id] = lane = _Lane(keys=empty, values=empty)
        return lane

    @staticmethod
    def _make_room(lane: _Lane, rows: int) -> None:
        room = lane.keys.shape[1]
        if rows <= room:
            return
        layers, _, *rest = lane.keys.shape
        room = max(_FIRST_ROOM, 2 * room, rows)
        for name in ("keys", "values"):
            old = getattr(lane, name)
            new = old.new_empty(layers, room, *rest)
            new[:, : old.shape[1]] = old
            setattr(lane, name, new)


class ContiguousPass:
    """`drafters.heads.attention.PassAttention` over a `ContiguousCache`."""

    def __init__(self, parts: list[_Part]) -> None:
        self._parts = parts

    def attend(
        self, layer: int, q_THD: torch.Tensor, k_TKD: torch.Tensor, v_TKD: torch.Tensor, scale: float
    ) -> torch.Tensor:
        """See the protocol. One call of torch's attention per sequence, on a view of its own memory."""
        counts = [part.count for part in self._parts]
        outputs = []
        pieces = zip(self._parts, *(torch.split(x, counts) for x in (q_THD, k_TKD, v_TKD)), strict=True)
        for part, q_QHD, k_QKD, v_QKD in pieces:
            keys, values, stop = part.lane.keys[layer], part.lane.values[layer], part.start + part.count
            keys[part.start : stop] = k_QKD
            values[part.start : stop] = v_QKD
            outputs.append(
                attend(q_QHD, keys[:stop], values[:stop], scale=scale, visible=part.visible, causal=part.causal)
            )
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)
