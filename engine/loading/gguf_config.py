"""From the metadata of a GGUF file to config.json and generation_config.json.

Key names are those of the GGUF specification (ggml-org/ggml, docs/gguf.md). Invariant: what the native decoder would
compute wrongly is refused by name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from decoding.errors import ModelLoadError

ARCHITECTURES = ("llama", "qwen2", "qwen3")
"""GGUF calls Mistral and SmolLM2 ``llama``, too."""

_CLASSES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}


def config_from_gguf(metadata: Mapping[str, Any], tensors: Collection[str]) -> dict[str, Any]:
    """config.json; raises ModelLoadError for what config.json cannot express or the decoder does not know."""
    architecture = metadata.get("general.architecture")
    if architecture not in ARCHITECTURES:
        raise ModelLoadError(
            f"GGUF files of architecture {architecture!r} are not supported, only {', '.join(ARCHITECTURES)}; "
            "use the model's original Hugging Face directory"
        )
    model = {key.removeprefix(f"{architecture}."): value for key, value in metadata.items()}
    if model.get("expert_count"):
        raise ModelLoadError(
            "the GGUF file holds a mixture of experts; use the model's original Hugging Face directory"
        )
    if "rope_freqs.weight" in tensors:
        raise ModelLoadError(
            "the GGUF file scales its rope by a tensor (rope_freqs.weight), which config.json cannot express; "
            "use the model's original Hugging Face directory"
        )
    try:
        heads = model["attention.head_count"]
        hidden = model["embedding_length"]
        config = {
            "architectures": [_CLASSES[architecture]],
            "model_type": architecture,
            "vocab_size": len(metadata["tokenizer.ggml.tokens"]),
            "hidden_size": hidden,
            "intermediate_size": model["feed_forward_length"],
            "num_hidden_layers": model["block_count"],
            "num_attention_heads": heads,
            "num_key_value_heads": model.get("attention.head_count_kv", heads),
            "head_dim": model.get("attention.key_length", hidden // heads),
            "hidden_act": "silu",
            "max_position_embeddings": model["context_length"],
            "rms_norm_eps": _shortest(model["attention.layer_norm_rms_epsilon"]),
            "rope_parameters": _rope(model),
            "tie_word_embeddings": "output.weight" not in tensors,
        }
    except KeyError as missing:
        raise ModelLoadError(f"the GGUF file lacks the metadata {missing}; fetch another file") from missing
    if architecture == "llama" and model.get("attention.sliding_window"):
        config |= {"model_type": "mistral", "architectures": ["MistralForCausalLM"]}
        config["sliding_window"] = model["attention.sliding_window"]
    if architecture != "qwen2":
        config["attention_bias"] = "blk.0.attn_q.bias" in tensors
    return config | _token_ids(metadata)


def generation_config_from_gguf(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """generation_config.json: every token that ends a text, and the one that begins it."""
    keys = (f"tokenizer.ggml.{kind}_token_id" for kind in ("eos", "eot", "eom"))
    return _token_ids(metadata) | {"eos_token_id": sorted({metadata[key] for key in keys if key in metadata})}


def _token_ids(metadata: Mapping[str, Any]) -> dict[str, Any]:
    kinds = {"bos_token_id": "bos", "eos_token_id": "eos"}
    found = {name: metadata.get(f"tokenizer.ggml.{kind}_token_id") for name, kind in kinds.items()}
    return {name: token for name, token in found.items() if token is not None}


def _rope(model: Mapping[str, Any]) -> dict[str, Any]:
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": _shortest(model.get("rope.freq_base", 10000.0))}
    scaling = model.get("rope.scaling.type", "none")
    if scaling == "none":
        return rope
    if scaling not in ("linear", "yarn"):
        raise ModelLoadError(f"rope scaling {scaling!r} of the GGUF file is not supported, only linear and yarn")
    rope |= {"rope_type": scaling, "factor": _shortest(model["rope.scaling.factor"])}
    if scaling == "yarn":
        rope["original_max_position_embeddings"] = model["rope.scaling.original_context_length"]
    return rope


def _shortest(value: float) -> float:
    """GGUF stores float32: the shortest decimal that rounds to it, 1e-05 instead of 9.999999747378752e-06."""
    return float(str(np.float32(value)))
