"""What the writers of all formats share.

Invariant: a file that was written here reads back to the same tensors, bit for bit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from drafters.heads.layers import LayerShape

WEIGHTS = "model.safetensors"


def state_tensors(module: nn.Module, rename: Callable[[str], str]) -> dict[str, torch.Tensor]:
    """Every parameter of a head under its name in the file."""
    return {rename(name): tensor.detach().cpu().contiguous() for name, tensor in module.state_dict().items()}


def write_head(directory: Path, tensors: Mapping[str, torch.Tensor], config: Mapping[str, Any]) -> None:
    """``model.safetensors`` and ``config.json`` in a directory that is made where it does not exist."""
    directory.mkdir(parents=True, exist_ok=True)
    save_file(dict(tensors), directory / WEIGHTS, metadata={"format": "pt"})
    write_config(directory, config)


def write_config(directory: Path, config: Mapping[str, Any]) -> None:
    """``config.json``."""
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def layer_fields(shape: LayerShape) -> dict[str, Any]:
    """A layer's shape as fields of a Llama-style config.json; biases are up to each format."""
    return {
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "rms_norm_eps": shape.norm_eps,
        "hidden_act": shape.activation,
        "mlp_bias": shape.mlp_bias,
        **shape.rope.settings,
    }
