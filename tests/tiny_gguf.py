"""Writes the tiny model as a GGUF file, with the tensor names and the row order of llama.cpp's converter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.numpy import load_file

_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_tiny_gguf(
    source: Path,
    target: Path,
    *,
    matrices: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    pre: str = "smollm",
    metadata: dict[str, Any] | None = None,
    extra_tensors: dict[str, np.ndarray] | None = None,
) -> None:
    """The model directory ``source`` as a GGUF file; ``metadata`` adds or overrides keys, or drops them with None."""
    config = json.loads((source / "config.json").read_text())
    tokenizer = json.loads((source / "tokenizer.json").read_text())
    kind = config["model_type"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    special = {token["id"] for token in tokenizer["added_tokens"]}
    tokens = sorted(tokenizer["model"]["vocab"], key=tokenizer["model"]["vocab"].__getitem__)
    tokens += [f"[PAD{index}]" for index in range(len(tokens), config["vocab_size"])]
    values: dict[str, Any] = {
        f"{kind}.block_count": config["num_hidden_layers"],
        f"{kind}.context_length": config["max_position_embeddings"],
        f"{kind}.embedding_length": config["hidden_size"],
        f"{kind}.feed_forward_length": config["intermediate_size"],
        f"{kind}.attention.head_count": heads,
        f"{kind}.attention.head_count_kv": kv_heads,
        f"{kind}.attention.key_length": config["head_dim"],
        f"{kind}.attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        f"{kind}.rope.freq_base": config["rope_parameters"]["rope_theta"],
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [
            _token_type(index, special, len(tokenizer["model"]["vocab"])) for index in range(len(tokens))
        ],
        "tokenizer.ggml.merges": [" ".join(merge) for merge in tokenizer["model"]["merges"]],
        "tokenizer.ggml.bos_token_id": config["bos_token_id"],
        "tokenizer.ggml.eos_token_id": config["eos_token_id"],
        "tokenizer.chat_template": "{{ messages }}",
    }
    writer = gguf.GGUFWriter(target, kind)
    for key, value in {**values, **(metadata or {})}.items():
        _add(writer, key, value)
    for name, array in load_file(source / "model.safetensors").items():
        stem, _, suffix = name.rpartition(".")
        block = ""
        if stem.startswith("model.layers."):
            _, _, index, stem = stem.split(".", 3)
            block = f"blk.{index}."
        permuted = {"self_attn.q_proj": heads, "self_attn.k_proj": kv_heads} if kind == "llama" else {}
        rows = _interleave(array, permuted[stem]) if stem in permuted else array
        target_type = matrices if array.ndim == 2 else gguf.GGMLQuantizationType.F32
        data = gguf.quantize(rows, target_type)
        writer.add_tensor(f"{block}{_NAMES[stem]}.{suffix}", data, raw_dtype=target_type)
    for name, array in (extra_tensors or {}).items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _token_type(index: int, special: set[int], size: int) -> int:
    """CONTROL, UNUSED for the padded tail, or NORMAL."""
    return 3 if index in special else 5 if index >= size else 1


def _interleave(rows: np.ndarray, heads: int) -> np.ndarray:
    """``LlamaModel.permute`` of llama.cpp's convert_hf_to_gguf.py."""
    return rows.reshape(heads, 2, -1, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if value is None:
        return
    if isinstance(value, list):
        writer.add_array(key, value)
    elif isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    else:
        writer.add_string(key, value)
