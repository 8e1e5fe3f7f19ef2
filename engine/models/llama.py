"""The native decoder: Llama, Mistral, SmolLM2, Qwen2 and Qwen3 over a paged KV cache.

Written for few operators per layer: queries, keys and values are one matrix product, gate and up projection another,
and queries and keys are normalised and rotated together. Invariant: equals transformers' model of the same weights up
to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from engine.attention.base import AttentionBackend
from engine.forward import ForwardInput
from engine.kv_cache import KVCache, KVShape
from engine.models.base import Hidden
from engine.models.config import ModelConfig
from engine.models.layers import Linear, RMSNorm
from engine.models.rope import rotate


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DecoderLayer:
    """Weights of one layer.

    Attributes:
        input_norm: before attention.
        qkv: E to (H + 2 Hk) D, queries first, then keys, then values.
        qk_norm: per-head norm of queries and keys together, weight [H + Hk, D], or None.
        attention_output: H D to E.
        mlp_norm: before the MLP.
        gate_up: E to 2 I, gate first.
        down: I to E.
        window: sliding window, or None.
    """

    input_norm: RMSNorm
    qkv: Linear
    qk_norm: RMSNorm | None
    attention_output: Linear
    mlp_norm: RMSNorm
    gate_up: Linear
    down: Linear
    window: int | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DecoderWeights:
    """Weights of a whole decoder.

    Attributes:
        embedding_VE: sets dtype and device.
        layers: in order.
        final_norm: after the last layer.
        head: E to V.
        parameters: number of weights, tied ones counted once.
    """

    embedding_VE: torch.Tensor
    layers: tuple[DecoderLayer, ...]
    final_norm: RMSNorm
    head: Linear
    parameters: int


class LlamaModel:
    """`engine.models.base.CausalModel` of the Llama family."""

    def __init__(
        self,
        config: ModelConfig,
        weights: DecoderWeights,
        attention: AttentionBackend[Any],
        activation: Callable[[torch.Tensor], torch.Tensor],
    ) -> None:
        self.config = config
        self._weights = weights
        self._attention = attention
        self._activation = activation
        self._scale = config.head_dim**-0.5

    @property
    def architecture(self) -> str:
        """Model type of its config.json."""
        return self.config.model_type

    @property
    def parameters(self) -> int:
        """Number of weights."""
        return self._weights.parameters

    @property
    def vocab_size(self) -> int:
        """V."""
        return self.config.vocab_size

    @property
    def context_length(self) -> int:
        """Most positions that the model was made for."""
        return self.config.context_length

    @property
    def kv_shapes(self) -> tuple[KVShape, ...]:
        """The same shape for every layer."""
        return (KVShape(num_heads=self.config.num_kv_heads, head_dim=self.config.head_dim),) * self.config.num_layers

    @property
    def dtype(self) -> torch.dtype:
        """Compute dtype."""
        return self._weights.embedding_VE.dtype

    @property
    def device(self) -> torch.device:
        """Where the weights live."""
        return self._weights.embedding_VE.device

    def hidden(self, batch: ForwardInput, cache: KVCache, *, taps: tuple[int, ...] = ()) -> Hidden:
        """Hidden states of one step; writes its keys and values into ``cache``."""
        tapped: dict[int, torch.Tensor] = {}
        x_TE = self._run(batch, cache, len(self._weights.layers), tapped if taps else None)
        return Hidden(self._weights.final_norm(x_TE), tuple(tapped[layer] for layer in taps))

    def early_hidden(self, batch: ForwardInput, cache: KVCache, *, num_layers: int) -> torch.Tensor:
        """Final-norm states [T, E] after the first ``num_layers`` layers; writes the keys and values of these."""
        return self._weights.final_norm(self._run(batch, cache, num_layers, None))

    def embed(self, tokens_T: torch.Tensor) -> torch.Tensor:
        """The embeddings [T, E]."""
        return functional.embedding(tokens_T, self._weights.embedding_VE)

    def _run(
        self, batch: ForwardInput, cache: KVCache, num_layers: int, tapped: dict[int, torch.Tensor] | None
    ) -> torch.Tensor:
        """The states [T, E] after ``num_layers`` layers, before the final norm; ``tapped`` gets each layer's input."""
        plan = self._attention.plan(batch)
        rotation = self.config.rope.rotation(batch.positions_T, self.dtype)
        x_TE = self.embed(batch.tokens_T)
        for index, layer in enumerate(self._weights.layers[:num_layers]):
            if tapped is not None:
                tapped[index] = x_TE
            q_THD, k_THD, v_THD = self._project(layer, layer.input_norm(x_TE), rotation)
            cache.write(index, batch.slots_T, k_THD, v_THD)
            attended_THD = self._attention.attend(
                plan, q_THD, cache.keys[index], cache.values[index], scale=self._scale, window=layer.window
            )
            x_TE = layer.attention_output(attended_THD.flatten(1)).add_(x_TE)
            gate_TI, up_TI = layer.gate_up(layer.mlp_norm(x_TE)).chunk(2, dim=-1)
            x_TE = layer.down(self._activation(gate_TI).mul_(up_TI)).add_(x_TE)
        if tapped is not None:
            tapped[num_layers] = x_TE
        return x_TE

    def logits(self, hidden_RE: torch.Tensor) -> torch.Tensor:
        """Logits [R, V]."""
        return self._weights.head(hidden_RE)

    def _project(
        self, layer: DecoderLayer, x_TE: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Rotated queries [T, H, D], rotated keys [T, Hk, D] and values [T, Hk, D]."""
        num_heads, num_kv = self.config.num_heads, self.config.num_kv_heads
        qkv_THD = layer.qkv(x_TE).view(len(x_TE), num_heads + 2 * num_kv, self.config.head_dim)
        qk_THD = qkv_THD[:, : num_heads + num_kv]
        if layer.qk_norm is not None:
            qk_THD = layer.qk_norm(qk_THD)
        qk_THD = rotate(qk_THD, *rotation)
        return qk_THD[:, :num_heads], qk_THD[:, num_heads:], qkv_THD[:, num_heads + num_kv :]
