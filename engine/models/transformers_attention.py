"""Our paged attention as an attention function of transformers.

transformers' modelling code hands every keyword argument of a forward pass down to the attention function; the step
travels that way, so that nothing is stored on the model. Invariant: an argument that changes what attention means is
honoured or refused, never dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn
from transformers import AttentionInterface

from decoding.errors import ModelLoadError
from engine.attention.base import AttentionBackend
from engine.forward import ForwardInput
from engine.kv_cache import KVCache

ATTENTION_NAME = "espalier_paged"
STEP_ARGUMENT = "espalier_step"

_REFUSED = {
    "s_aux": "attention sinks",
    "sinks": "attention sinks",
    "position_bias": "position biases",
    "indices": "sparse attention",
    "block_indices": "sparse attention",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCall:
    """What one layer asks for.

    Attributes:
        layer: index of the layer, which is the KV cache's too.
        q_THD: queries.
        k_THD: keys, after rotation.
        v_THD: values.
        scale: factor on the scores.
        window: sliding window, or None.
        softcap: bound of the scores, or None.
    """

    layer: int
    q_THD: torch.Tensor
    k_THD: torch.Tensor
    v_THD: torch.Tensor
    scale: float
    window: int | None
    softcap: float | None


class AttentionStep(Protocol):
    """Answers the attention calls of one forward pass."""

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Output [T, H, D]."""
        ...


class PagedStep:
    """One step over the paged KV cache."""

    def __init__(self, backend: AttentionBackend[Any], batch: ForwardInput, cache: KVCache) -> None:
        self._backend = backend
        self._plan = backend.plan(batch)
        self._slots_T = batch.slots_T
        self._cache = cache

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Store the layer's keys and values, then attend over all that the sequences have."""
        self._cache.write(call.layer, self._slots_T, call.k_THD, call.v_THD)
        return self._backend.attend(
            self._plan,
            call.q_THD,
            self._cache.keys[call.layer],
            self._cache.values[call.layer],
            scale=call.scale,
            window=call.window,
            softcap=call.softcap,
        )


def register_attention() -> None:
    """Make `ATTENTION_NAME` an attention implementation of transformers; it is global there, and one is enough."""
    AttentionInterface.register(ATTENTION_NAME, _paged_attention)


def _paged_attention(  # noqa: PLR0917 (transformers passes them so)
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **arguments: Any,
) -> tuple[torch.Tensor, None]:
    """Signature and shapes of transformers: [1, heads, T, D] in, [1, T, heads, D] out."""
    if attention_mask is not None:
        # For attention functions that it does not know, transformers makes none: this one is the model's own.
        raise ModelLoadError(
            f"{type(module).__name__} makes a mask of its own, which the paged attention does not know"
        )
    for name, meaning in _REFUSED.items():
        if arguments.get(name) is not None:
            raise ModelLoadError(f"{type(module).__name__} uses {meaning}, which the paged attention does not have")
    step: AttentionStep | None = arguments.get(STEP_ARGUMENT)
    if step is None:
        raise ModelLoadError(f"{type(module).__name__} is not handed the arguments of the forward pass by its model")
    if not (arguments.get("is_causal") is not False and getattr(module, "is_causal", True)):
        raise ModelLoadError(f"{type(module).__name__} is not causal; only causal language models can be served")
    out_THD = step.attend(
        AttentionCall(
            layer=int(module.layer_idx),  # type: ignore[arg-type]
            q_THD=query[0].transpose(0, 1),
            k_THD=key[0].transpose(0, 1),
            v_THD=value[0].transpose(0, 1),
            scale=query.shape[-1] ** -0.5 if scaling is None else scaling,
            window=sliding_window,
            softcap=softcap,
        )
    )
    return out_THD.unsqueeze(0), None
