"""From a checkpoint's tensors, under transformers' names, to the fused weights of the native decoder.

Invariant: every tensor of the checkpoint is used exactly once, or loading fails and names it.
"""

from __future__ import annotations

import torch

from engine.loading.checkpoint import TensorSource
from engine.models.config import ModelConfig
from engine.models.layers import Linear, RMSNorm
from engine.models.llama import DecoderLayer, DecoderWeights


def read_decoder_weights(config: ModelConfig, source: TensorSource) -> DecoderWeights:
    """Read every weight; raises ModelLoadError where a tensor is missing, misshapen or left over."""
    embedding = source.take("model.embed_tokens.weight", (config.vocab_size, config.hidden_size))
    layers = tuple(_layer(config, source, f"model.layers.{index}", index) for index in range(config.num_layers))
    final_norm = RMSNorm(source.take("model.norm.weight", (config.hidden_size,)), config.norm_eps)
    if config.tied_embeddings:
        source.skip("lm_head.weight")
        head = Linear(embedding)
    else:
        head = Linear(source.take("lm_head.weight", (config.vocab_size, config.hidden_size)))
    source.finish()
    return DecoderWeights(
        embedding_VE=embedding, layers=layers, final_norm=final_norm, head=head, parameters=source.parameters
    )


def _layer(config: ModelConfig, source: TensorSource, prefix: str, index: int) -> DecoderLayer:
    hidden, inner = config.hidden_size, config.intermediate_size
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    # Old checkpoints store the rope table, which config.json determines.
    source.skip(f"{prefix}.self_attn.rotary_emb.inv_freq")

    def norm(name: str) -> RMSNorm:
        return RMSNorm(source.take(f"{prefix}.{name}.weight", (hidden,)), config.norm_eps)

    def linear(names: tuple[str, ...], outputs: tuple[int, ...], inputs: int, *, bias: bool) -> Linear:
        parts = list(zip(names, outputs, strict=True))
        weight = torch.cat([source.take(f"{prefix}.{name}.weight", (size, inputs)) for name, size in parts])
        if not bias:
            return Linear(weight)
        return Linear(weight, torch.cat([source.take(f"{prefix}.{name}.bias", (size,)) for name, size in parts]))

    return DecoderLayer(
        input_norm=norm("input_layernorm"),
        qkv=linear(
            ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
            (queries, keys, keys),
            hidden,
            bias=config.qkv_bias,
        ),
        qk_norm=_qk_norm(config, source, prefix) if config.qk_norm else None,
        attention_output=linear(("self_attn.o_proj",), (hidden,), queries, bias=config.output_bias),
        mlp_norm=norm("post_attention_layernorm"),
        gate_up=linear(("mlp.gate_proj", "mlp.up_proj"), (inner, inner), hidden, bias=config.mlp_bias),
        down=linear(("mlp.down_proj",), (hidden,), inner, bias=config.mlp_bias),
        window=config.windows[index],
    )


def _qk_norm(config: ModelConfig, source: TensorSource, prefix: str) -> RMSNorm:
    """One norm over queries and keys together: each head carries the weight of its kind."""
    of_queries = source.take(f"{prefix}.self_attn.q_norm.weight", (config.head_dim,))
    of_keys = source.take(f"{prefix}.self_attn.k_norm.weight", (config.head_dim,))
    heads = (of_queries.expand(config.num_heads, -1), of_keys.expand(config.num_kv_heads, -1))
    return RMSNorm(torch.cat(heads), config.norm_eps)
