"""Attention by gathering a sequence's keys and values and calling torch's scaled_dot_product_attention.

Runs wherever torch runs, in every floating dtype. Query heads that share a KV head become rows of one small matrix, so
that keys are neither repeated per head nor read once per head. Invariant: memory beyond the gathered keys and values is
bounded by one tile of queries times the longest context, however long a chunk is.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

from engine.attention.layout import Chunk, Group, Layout, make_layout
from engine.forward import ForwardInput

_TILE = 256
"""Most queries of a chunk that are attended at once."""

_TILE_ELEMENTS = 1 << 21
"""Most (query, key) pairs in one tile, unless that would leave fewer than 16 queries."""


class ReferencePlan:
    """One step's layouts, masks and scratch memory, filled as layers ask for them.

    A model has one or two distinct windows, so that almost every layer finds everything made.
    """

    def __init__(self, batch: ForwardInput) -> None:
        self._batch = batch
        self._longest = max(
            context + stop - start
            for context, start, stop in zip(batch.context_lens, batch.starts[:-1], batch.starts[1:], strict=True)
        )
        self._layouts: dict[int | None, Layout] = {}
        self._masks: dict[tuple[object, ...], torch.Tensor] = {}
        self._scratch: dict[tuple[object, ...], torch.Tensor] = {}

    def effective_window(self, window: int | None) -> int | None:
        """None where ``window`` hides nothing from anybody in this step."""
        return None if window is None or window >= self._longest else window

    def layout(self, window: int | None) -> Layout:
        """Groups and chunks for an effective window."""
        if window not in self._layouts:
            self._layouts[window] = make_layout(self._batch, window)
        return self._layouts[window]

    def group_mask(self, group: Group, per_kv: int, dtype: torch.dtype) -> torch.Tensor:
        """Additive mask [S, 1, Q * G, K]; rows are (query, one of the G heads that share a KV head)."""
        key = (group, per_kv, dtype)
        if key not in self._masks:
            num_sequences, num_queries, num_keys = group.visible_SQK.shape
            hidden = ~group.visible_SQK.view(num_sequences, 1, num_queries, 1, num_keys)
            mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, -torch.inf)
            mask = mask.expand(-1, -1, -1, per_kv, -1)
            self._masks[key] = mask.reshape(num_sequences, 1, num_queries * per_kv, num_keys)
        return self._masks[key]

    def chunk_mask(self, tile: int, window: int | None, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Additive mask [tile, width]; its last r rows and k columns mask r queries that are the last of k keys.

            row i, column j       visible iff  0 <= (width - tile + i) - j < window

        Only the distance between query and key matters, so that one matrix serves every tile of every chunk.
        """
        key = (tile, window, dtype)
        if key not in self._masks:
            width = self._longest if window is None else min(self._longest, tile - 1 + window)
            rows = torch.arange(width - tile, width, device=device)[:, None]
            distance = rows - torch.arange(width, device=device)
            hidden = distance < 0 if window is None else (distance < 0) | (distance >= window)
            mask = torch.zeros(hidden.shape, dtype=dtype, device=device)
            self._masks[key] = mask.masked_fill_(hidden, -torch.inf)
        return self._masks[key]

    def gather(self, role: str, cache: torch.Tensor, slots_N: torch.Tensor) -> torch.Tensor:
        """The cache's rows [N, Hk, D] at ``slots_N``, in memory that the next layer's gather overwrites.

        Fresh memory for every layer would cost more in page faults than the copy itself.
        """
        flat = cache.flatten(0, 1)
        key = (role, len(slots_N), flat.shape[1:], flat.dtype)
        if key not in self._scratch:
            self._scratch[key] = flat.new_empty(len(slots_N), *flat.shape[1:])
        return torch.index_select(flat, 0, slots_N, out=self._scratch[key])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Call:
    """Arguments of one `attend`; the window is the effective one."""

    q_THD: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    scale: float
    window: int | None
    softcap: float | None

    @property
    def per_kv(self) -> int:
        """G, query heads that share a KV head."""
        return self.q_THD.shape[1] // self.keys.shape[2]


class ReferenceAttention:
    """`engine.attention.base.AttentionBackend` in plain torch."""

    def plan(self, batch: ForwardInput) -> ReferencePlan:
        """What is common to all layers of one step."""
        return ReferencePlan(batch)

    def attend(
        self,
        plan: ReferencePlan,
        q_THD: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        *,
        scale: float,
        window: int | None,
        softcap: float | None = None,
    ) -> torch.Tensor:
        """Attention output [T, H, D]; see the protocol."""
        window = plan.effective_window(window)
        layout = plan.layout(window)
        call = _Call(q_THD=q_THD, keys=keys, values=values, scale=scale, window=window, softcap=softcap)
        outputs = [_attend_group(plan, group, call) for group in layout.groups]
        outputs += [_attend_chunk(plan, chunk, call) for chunk in layout.chunks]
        out_PHD = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
        return out_PHD if layout.order_T is None else out_PHD.index_select(0, layout.order_T)


def _attend_group(plan: ReferencePlan, group: Group, call: _Call) -> torch.Tensor:
    """Output [P, H, D] of a group's padded rows."""
    num_sequences, num_queries, num_keys = group.visible_SQK.shape
    num_heads, head_dim = call.q_THD.shape[1:]
    num_kv, per_kv = call.keys.shape[2], call.per_kv
    q_PHD = call.q_THD if group.queries_P is None else call.q_THD.index_select(0, group.queries_P)
    q_SHQGD = q_PHD.view(num_sequences, num_queries, num_kv, per_kv, head_dim).permute(0, 2, 1, 3, 4)
    out_SHRD = _softmax_attention(
        q_SHQGD.reshape(num_sequences, num_kv, num_queries * per_kv, head_dim),
        plan.gather("keys", call.keys, group.slots_N).view(num_sequences, num_keys, num_kv, -1).transpose(1, 2),
        plan.gather("values", call.values, group.slots_N).view(num_sequences, num_keys, num_kv, -1).transpose(1, 2),
        mask=plan.group_mask(group, per_kv, call.q_THD.dtype),
        call=call,
    )
    out_SQHGD = out_SHRD.view(num_sequences, num_kv, num_queries, per_kv, -1).permute(0, 2, 1, 3, 4)
    return out_SQHGD.reshape(num_sequences * num_queries, num_heads, -1)


def _attend_chunk(plan: ReferencePlan, chunk: Chunk, call: _Call) -> torch.Tensor:
    """Output [n, H, D] of one long chain, tile by tile; each tile sees keys up to its own last token."""
    num_heads, head_dim = call.q_THD.shape[1:]
    num_kv, per_kv = call.keys.shape[2], call.per_kv
    count, num_keys = chunk.stop - chunk.start, len(chunk.slots_K)
    # The G query heads of a KV head take the batch dimension; its keys are expanded over it without a copy.
    q_GHTD = call.q_THD[chunk.start : chunk.stop].view(count, num_kv, per_kv, head_dim).permute(2, 1, 0, 3)
    k_GHKD = plan.gather("keys", call.keys, chunk.slots_K).transpose(0, 1).expand(per_kv, -1, -1, -1)
    v_GHKD = plan.gather("values", call.values, chunk.slots_K).transpose(0, 1).expand(per_kv, -1, -1, -1)

    # What the window and the tile are depends on this chunk alone, as do the bits of its output.
    window = None if call.window is None or call.window >= num_keys else call.window
    if count == num_keys and window is None and call.softcap is None:
        out = functional.scaled_dot_product_attention(q_GHTD, k_GHKD, v_GHKD, is_causal=True, scale=call.scale)
        return out.permute(2, 1, 0, 3).reshape(count, num_heads, -1)

    tile = min(_TILE, max(16, _TILE_ELEMENTS // num_keys), count)
    mask = plan.chunk_mask(tile, window, call.q_THD.dtype, call.q_THD.device)
    outputs = []
    for start in range(0, count, tile):
        stop = min(start + tile, count)
        last = num_keys - count + stop
        first = 0 if window is None else max(0, last - (stop - start) - window + 1)
        out = _softmax_attention(
            q_GHTD[:, :, start:stop],
            k_GHKD[:, :, first:last],
            v_GHKD[:, :, first:last],
            # CUDA's kernels want the mask aligned, which a slice is not; against the attention itself a copy is cheap.
            mask=mask[tile - (stop - start) :, mask.shape[1] - (last - first) :].contiguous(),
            call=call,
        )
        outputs.append(out.permute(2, 1, 0, 3).reshape(stop - start, num_heads, -1))
    return torch.cat(outputs)


def _softmax_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, mask: torch.Tensor, call: _Call
) -> torch.Tensor:
    """Output [..., rows, D] for queries [..., rows, D], keys and values [..., K, D] and an additive mask."""
    if call.softcap is None:
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=call.scale)
    # torch's fused kernels have no softcap. The softmax is taken in at least float32, as they do.
    cap = call.softcap
    scores = torch.matmul(q, k.transpose(-2, -1)).mul_(call.scale / cap).tanh_().mul_(cap).add_(mask)
    weights = torch.softmax(scores, dim=-1, dtype=torch.promote_types(q.dtype, torch.float32))
    return torch.matmul(weights.to(q.dtype), v)
