"""The interface of attention over the paged KV cache.

A backend plans once per step (masks, gather indices, whatever it needs) and attends once per layer. Invariant: keys and
values of the step's own tokens are in the cache before `attend` is called for the layer.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

import torch

from engine.forward import ForwardInput

PlanT = TypeVar("PlanT")


class AttentionBackend(Protocol[PlanT]):
    """Scaled dot-product attention of packed queries against paged keys and values."""

    def plan(self, batch: ForwardInput) -> PlanT:
        """What is common to all layers of one step."""
        ...

    def attend(
        self,
        plan: PlanT,
        q_THD: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        *,
        scale: float,
        window: int | None,
        softcap: float | None = None,
    ) -> torch.Tensor:
        """Attention output [T, H, D].

        q_THD has H = G * Hk query heads, query head h reading KV head h // G (GQA). keys and values are one layer's
        cache tensors [num_blocks, BLOCK_SIZE, Hk, D]. With ``window`` w a token at position p sees positions > p - w.
        ``softcap`` c maps scores s to c * tanh(s / c) before the softmax (Gemma 2).
        """
        ...
