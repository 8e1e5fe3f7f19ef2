"""Loads a model of transformers for `engine.models.transformers_model`.

Invariant: every weight of the model comes from the checkpoint, or all of them from a seed.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from decoding.errors import ModelLoadError
from engine.loading.files import ModelFiles
from engine.models.transformers_attention import ATTENTION_NAME, register_attention
from engine.models.transformers_probe import refuse_by_rule

_AUTO: Any = AutoModelForCausalLM


def load_transformers(
    files: ModelFiles,
    config: PretrainedConfig,
    *,
    dtype: torch.dtype,
    device: torch.device,
    load_format: str,
    seed: int,
) -> PreTrainedModel:
    """The model with our attention set; raises ModelLoadError where its kind or its weights do not fit."""
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise ModelLoadError(f"transformers has no causal language model of type {config.model_type!r}")
    model_class: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    refuse_by_rule(model_class, config)
    register_attention()
    try:
        model = _random(config, dtype, device, seed) if load_format == "dummy" else _read(files, dtype).to(device)
    except ModelLoadError:
        raise
    except Exception as error:  # two hundred architectures fail in as many ways
        raise ModelLoadError(f"transformers cannot load {files.directory}: {error}") from error
    loaded: PreTrainedModel = model.eval().requires_grad_(requires_grad=False)
    return loaded


def _random(config: PretrainedConfig, dtype: torch.dtype, device: torch.device, seed: int) -> Any:
    """Weights as transformers initialises them."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), device:
        torch.manual_seed(seed)
        return _AUTO.from_config(config, dtype=dtype, attn_implementation=ATTENTION_NAME)


def _read(files: ModelFiles, dtype: torch.dtype) -> Any:
    model, report = _AUTO.from_pretrained(
        files.directory,
        dtype=dtype,
        attn_implementation=ATTENTION_NAME,
        local_files_only=True,
        use_safetensors=True,
        output_loading_info=True,
        ignore_mismatched_sizes=True,  # reported below, with the names
    )
    for kind in ("missing", "unexpected", "mismatched"):
        if names := sorted(str(key) for key in report[f"{kind}_keys"]):
            raise ModelLoadError(
                f"{files.directory}: {kind} tensors: {', '.join(names[:5])}; does config.json belong to the weights?"
            )
    return model
