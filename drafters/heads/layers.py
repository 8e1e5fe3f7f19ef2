"""The decoder layer that every head is made of: Llama's, in parts, because each kind of head feeds it differently.

Parameters are named as in public checkpoints, so that a module's state dict is the list of tensors to read or write.
Invariant: a row of the output depends on its own row, its position and what it attends to, never on its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import torch
from torch import nn
from torch.nn import functional
from transformers.activations import ACT2FN

from drafters.heads.attention import PassAttention
from drafters.heads.rope import Rope, rotate

Rotation = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerShape:
    """Shape and options of a decoder layer.

    Attributes:
        hidden_size: E.
        intermediate_size: width of the gated MLP.
        num_heads: query heads.
        num_kv_heads: key and value heads; divides num_heads.
        head_dim: D.
        norm_eps: added to the mean square in every RMS norm.
        activation: name of the MLP's gate function in transformers.
        qkv_bias: queries, keys and values have biases.
        output_bias: the attention's output projection has one.
        mlp_bias: all projections of the MLP have one.
        qk_norm: queries and keys are normalised per head before rotation (Qwen3).
        rope: rotary table.
    """

    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    activation: str
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: bool
    rope: Rope


class Linear(nn.Linear):
    """torch's linear layer, with single bfloat16 rows on a CPU as matrix-vector products.

    There a bfloat16 matrix product repacks its weights on every call, which for one row costs more than the product.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[T, in] to [T, out]."""
        weight = self.weight
        if len(x) != 1 or weight.dtype != torch.bfloat16 or weight.is_cuda or torch.is_grad_enabled():
            return functional.linear(x, weight, self.bias)
        out = torch.mv(weight, x[0])
        return (out if self.bias is None else out + self.bias).unsqueeze(0)


class Attention(nn.Module):
    """Grouped-query attention with rotary positions; ``inputs`` is E, or 2 E where two vectors are joined."""

    def __init__(self, shape: LayerShape, inputs: int) -> None:
        super().__init__()
        self._head_dim = shape.head_dim
        queries, keys = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
        self.q_proj = Linear(inputs, queries, bias=shape.qkv_bias)
        self.k_proj = Linear(inputs, keys, bias=shape.qkv_bias)
        self.v_proj = Linear(inputs, keys, bias=shape.qkv_bias)
        self.o_proj = Linear(queries, shape.hidden_size, bias=shape.output_bias)
        self.q_norm = nn.RMSNorm(shape.head_dim, shape.norm_eps) if shape.qk_norm else None
        self.k_norm = nn.RMSNorm(shape.head_dim, shape.norm_eps) if shape.qk_norm else None

    def forward(self, x: torch.Tensor, rotation: Rotation, attention: PassAttention, layer: int) -> torch.Tensor:
        """[T, inputs] to [T, E]."""
        q_THD, k_TKD, v_TKD = (
            project(x).view(len(x), -1, self._head_dim) for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        if self.q_norm is not None and self.k_norm is not None:
            q_THD, k_TKD = self.q_norm(q_THD), self.k_norm(k_TKD)
        q_THD, k_TKD = rotate(q_THD, *rotation), rotate(k_TKD, *rotation)
        attended_THD = attention.attend(layer, q_THD, k_TKD, v_TKD, self._head_dim**-0.5)
        out: torch.Tensor = self.o_proj(attended_THD.flatten(1))
        return out


class GatedMLP(nn.Module):
    """``down(activation(gate(x)) * up(x))`` (Shazeer 2020)."""

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        self.gate_proj = Linear(shape.hidden_size, shape.intermediate_size, bias=shape.mlp_bias)
        self.up_proj = Linear(shape.hidden_size, shape.intermediate_size, bias=shape.mlp_bias)
        self.down_proj = Linear(shape.intermediate_size, shape.hidden_size, bias=shape.mlp_bias)
        self._activation = ACT2FN[shape.activation]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[T, E] to [T, E]."""
        out: torch.Tensor = self.down_proj(self._activation(self.gate_proj(x)) * self.up_proj(x))
        return out


class DecoderLayer(nn.Module):
    """Attention and MLP around a residual stream."""

    def __init__(self, shape: LayerShape, *, input_norm: bool = True, joined: bool = False) -> None:
        """A layer with an ``input_layernorm`` or without.

        Attention of a ``joined`` one reads two vectors, normed by ``input_layernorm`` and ``hidden_norm``.
        """
        super().__init__()
        size, eps = shape.hidden_size, shape.norm_eps
        self.self_attn = Attention(shape, 2 * size if joined else size)
        self.mlp = GatedMLP(shape)
        self.input_layernorm = nn.RMSNorm(size, eps) if input_norm else nn.Identity()
        self.hidden_norm = nn.RMSNorm(size, eps) if joined else nn.Identity()
        self.post_attention_layernorm = nn.RMSNorm(size, eps)

    def forward(self, x_TE: torch.Tensor, rotation: Rotation, attention: PassAttention, layer: int) -> torch.Tensor:
        """The plain layer: attention reads the residual stream [T, E] itself, normed where there is a norm."""
        return self.around(x_TE, self.input_layernorm(x_TE), rotation, attention, layer)

    def around(
        self, residual_TE: torch.Tensor, read: torch.Tensor, rotation: Rotation, attention: PassAttention, layer: int
    ) -> torch.Tensor:
        """The residual stream after a layer whose attention reads ``read`` [T, E or 2 E]."""
        middle_TE = residual_TE + self.self_attn(read, rotation, attention, layer)
        out: torch.Tensor = middle_TE + self.mlp(self.post_attention_layernorm(middle_TE))
        return out


class Layers(nn.ModuleList):
    """Decoder layers under the names ``{i}.*``, with their type."""

    def __iter__(self) -> Iterator[DecoderLayer]:
        """The layers in order."""
        return cast("Iterator[DecoderLayer]", super().__iter__())
