"""Heads as they are published: config.json and tensors under public names, one of each kind and variant."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

WIDE = 48
TARGET_LAYERS = 6
VOCAB = 70
DRAFT_VOCAB = 41
EPS = 1e-5
THETA = 500.0
KINDS = (
    "eagle",
    "eagle-bare",
    "eagle3",
    "eagle3-late",
    "eagle3-same",
    "eagle3-tied",
    "speculators",
    "mtp-deepseek",
    "mtp-qwen",
)


@dataclass
class HeadFiles:
    """A head as published: config.json and tensors by name, to be changed before they are written."""

    kind: str
    format: str
    config: dict[str, Any]
    tensors: dict[str, torch.Tensor]
    aux: tuple[int, ...] = ()

    def write(self, directory: Path, *, file: str = "model.safetensors") -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "config.json").write_text(json.dumps(self.config), encoding="utf-8")
        if file.endswith(".safetensors"):
            save_file(self.tensors, directory / file)
        else:
            torch.save(self.tensors, directory / file)
        return directory


def make_files(kind: str, seed: int = 0) -> HeadFiles:
    """One head of each kind; the draft is narrower than the target where the format allows it."""
    source = torch.Generator().manual_seed(seed + 100)
    size = 32 if kind in ("eagle3", "eagle3-late", "speculators") else WIDE
    heads, kv_heads, head_dim, inner = 4, 2, 8, 40

    def matrix(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, generator=source, dtype=torch.float64) / math.sqrt(columns)

    def vector(count: int, mean: float = 1.0) -> torch.Tensor:
        return mean + 0.3 * torch.randn(count, generator=source, dtype=torch.float64)

    def layer(prefix: str, inputs: int, *, bias: bool = False) -> dict[str, torch.Tensor]:
        tensors = {
            f"{prefix}self_attn.q_proj.weight": matrix(heads * head_dim, inputs) * 2,
            f"{prefix}self_attn.k_proj.weight": matrix(kv_heads * head_dim, inputs) * 2,
            f"{prefix}self_attn.v_proj.weight": matrix(kv_heads * head_dim, inputs),
            f"{prefix}self_attn.o_proj.weight": matrix(size, heads * head_dim),
            f"{prefix}mlp.gate_proj.weight": matrix(inner, size),
            f"{prefix}mlp.up_proj.weight": matrix(inner, size),
            f"{prefix}mlp.down_proj.weight": matrix(size, inner),
            f"{prefix}post_attention_layernorm.weight": vector(size),
        }
        if bias:
            tensors |= {f"{prefix}self_attn.{name}_proj.bias": vector(heads * head_dim, 0.0) for name in "q"}
            tensors |= {f"{prefix}self_attn.{name}_proj.bias": vector(kv_heads * head_dim, 0.0) for name in "kv"}
        return tensors

    shape: dict[str, Any] = {
        "hidden_size": size,
        "intermediate_size": inner,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "rms_norm_eps": EPS,
        "rope_theta": THETA,
        "hidden_act": "silu",
        "vocab_size": VOCAB,
        "num_hidden_layers": 1,
    }
    llama = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **shape}

    if kind == "eagle":
        tensors = {
            "embed_tokens.weight": matrix(VOCAB, size) * 3,
            "fc.weight": matrix(size, 2 * size),
            "fc.bias": vector(size, 0.0),
            **layer("layers.0.", size, bias=True),
        }
        return HeadFiles(kind=kind, format="eagle", config={**llama, "qkv_bias": True}, tensors=tensors)
    if kind == "eagle-bare":  # the target's embedding, no biases, two layers of which the second has a norm
        tensors = {"fc.weight": matrix(size, 2 * size), **layer("layers.0.", size), **layer("layers.1.", size)}
        tensors["layers.1.input_layernorm.weight"] = vector(size)
        config = {**llama, "bias": False, "num_hidden_layers": 2}
        return HeadFiles(kind=kind, format="eagle", config=config, tensors=tensors)
    if kind in ("mtp-deepseek", "mtp-qwen"):
        config = {**llama, "num_hidden_layers": TARGET_LAYERS, "num_nextn_predict_layers": 1}
        if kind == "mtp-deepseek":
            prefix = f"model.layers.{TARGET_LAYERS}."
            tensors = {
                "model.embed_tokens.weight": matrix(VOCAB, size),  # of the target, in the same files
                f"{prefix}enorm.weight": vector(size),
                f"{prefix}hnorm.weight": vector(size),
                f"{prefix}eh_proj.weight": matrix(size, 2 * size),
                f"{prefix}shared_head.norm.weight": vector(size),
                f"{prefix}shared_head.head.weight": matrix(VOCAB, size),
                f"{prefix}embed_tokens.weight": matrix(VOCAB, size) * 3,
                **layer(prefix, size),
                f"{prefix}input_layernorm.weight": vector(size),
            }
        else:
            tensors = {
                "model.norm.weight": vector(size),
                "mtp.fc.weight": matrix(size, 2 * size),
                "mtp.pre_fc_norm_embedding.weight": vector(size),
                "mtp.pre_fc_norm_hidden.weight": vector(size),
                "mtp.norm.weight": vector(size),
                **layer("mtp.layers.0.", size, bias=True),
                "mtp.layers.0.input_layernorm.weight": vector(size),
                "mtp.layers.0.self_attn.q_norm.weight": vector(head_dim),
                "mtp.layers.0.self_attn.k_norm.weight": vector(head_dim),
            }
        return HeadFiles(kind=kind, format="mtp", config=config, tensors=tensors)

    aux = (1, 3, 5) if kind != "eagle3-late" else (0, 2, 4, 5)
    first = "layers.0." if kind == "speculators" else "midlayer."
    target_ids = torch.randperm(VOCAB, generator=source)[:DRAFT_VOCAB].sort().values
    drafted = torch.zeros(VOCAB, dtype=torch.bool)
    drafted[target_ids] = True
    tensors = {
        "fc.weight": matrix(size, len(aux) * WIDE),
        **layer(first, 2 * size),
        f"{first}hidden_norm.weight": vector(size),
        f"{first}input_layernorm.weight": vector(size),
        "norm.weight": vector(size),
        "lm_head.weight": matrix(DRAFT_VOCAB, size),
        "d2t": target_ids - torch.arange(DRAFT_VOCAB),
        "t2d": drafted,
    }
    options: dict[str, Any] = {"draft_vocab_size": DRAFT_VOCAB, "target_hidden_size": WIDE}
    if kind == "eagle3-same":  # the target's embedding, its whole vocabulary
        tensors |= {"lm_head.weight": matrix(VOCAB, size)}
        del tensors["d2t"], tensors["t2d"]
        config = {**llama, "architectures": ["LlamaForCausalLMEagle3"], "eagle_aux_hidden_state_layer_ids": list(aux)}
        return HeadFiles(kind=kind, format="eagle3", config=config, tensors=tensors, aux=aux)
    tensors["embed_tokens.weight"] = matrix(VOCAB, size) * 3
    if kind == "eagle3-tied":  # no fc: it reads the last hidden state; its output layer is its embedding
        for name in ("fc.weight", "lm_head.weight", "d2t", "t2d"):
            del tensors[name]
        config = {**llama, "tie_word_embeddings": True, "eagle_config": {"use_aux_hidden_state": False}}
        return HeadFiles(kind=kind, format="eagle3", config=config, tensors=tensors)
    if kind == "eagle3":
        config = {**llama, **options, "eagle_config": {"eagle_aux_hidden_state_layer_ids": list(aux)}}
        return HeadFiles(kind=kind, format="eagle3", config=config, tensors=tensors, aux=aux)
    if kind == "eagle3-late":  # the later options, and a second layer
        tensors |= {f"fc_norm.{index}.weight": vector(WIDE) for index in range(len(aux))}
        tensors |= {**layer("layers.1.", size), "layers.1.input_layernorm.weight": vector(size)}
        tensors["input_norm.weight"] = vector(len(aux) * WIDE)
        late = {"fc_norm": True, "norm_before_fc": True, "norm_output": True, "norm_before_residual": True}
        ids = {"eagle_aux_hidden_state_layer_ids": list(aux)}
        config = {**llama, **options, **late, **ids, "num_hidden_layers": 2}
        return HeadFiles(kind=kind, format="eagle3", config=config, tensors=tensors, aux=aux)
    config = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "speculators_version": "0.3.0",
        "transformer_layer_config": {"model_type": "llama", **shape},
        **options,
        "norm_before_residual": True,
        "eagle_aux_hidden_state_layer_ids": list(aux),
        "speculators_config": {
            "algorithm": "eagle3",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
            "verifier": {"name_or_path": "somebody/tiny-target"},
        },
    }
    return HeadFiles(kind=kind, format="speculators", config=config, tensors=tensors, aux=aux)
