"""What cannot be served exactly is refused by name, before anything is computed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from decoding.errors import ModelLoadError
from engine.loading.directory import read_directory
from engine.loading.weights import load_model

SSM = {"state_size": 8, "num_heads": 4, "head_dim": 32, "n_groups": 1}
MLA = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 12}


@pytest.fixture
def load(tmp_path: Path, tiny_model_dir: Callable[..., Path]) -> Callable[..., object]:
    """Load random weights for a changed configuration; None removes a key."""

    def load_changed(implementation: str = "auto", **changes: Any) -> object:
        directory = Path(shutil.copytree(tiny_model_dir(), tmp_path / "model"))
        config = {**json.loads((directory / "config.json").read_text()), **changes}
        config = {name: value for name, value in config.items() if value is not None}
        (directory / "config.json").write_text(json.dumps(config))
        return load_model(
            read_directory(directory, "m"),
            dtype=torch.float32,
            device=torch.device("cpu"),
            load_format="dummy",
            implementation=implementation,
        )

    return load_changed


@pytest.mark.parametrize("implementation", ["native", "transformers"])
@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        ("dynamic", {"factor": 2.0}),
        (
            "longrope",
            {
                "factor": 2.0,
                "short_factor": [1.0] * 8,
                "long_factor": [2.0] * 8,
                "original_max_position_embeddings": 64,
            },
        ),
    ],
)
def test_length_dependent_rope(load, implementation, kind, parameters):
    with pytest.raises(ModelLoadError, match=f"rope scaling '{kind}' depends on the length"):
        load(implementation, rope_parameters={"rope_type": kind, "rope_theta": 10000.0, **parameters})


def test_length_dependent_rope_of_some_layers(load):
    kinds = {"full_attention": "dynamic", "sliding_attention": "default"}
    parameters = {layer: {"rope_type": kind, "rope_theta": 1e4, "factor": 2.0} for layer, kind in kinds.items()}
    with pytest.raises(ModelLoadError, match="rope scaling 'dynamic'"):
        load(model_type="gemma3_text", layer_types=list(kinds), rope_parameters=parameters)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gemma2"}, "does not know model type 'gemma2', only llama, mistral, qwen2, qwen3"),
        ({"model_type": "mixtral"}, "does not know model type 'mixtral'"),
        ({"hidden_act": "squeeze"}, "hidden_act 'squeeze'"),
        ({"num_key_value_heads": 3}, "num_attention_heads 4 .* is not a multiple of num_key_value_heads 3"),
        (
            {
                "rope_parameters": {
                    "rope_type": "linear",
                    "factor": 2.0,
                    "rope_theta": 1e4,
                    "partial_rotary_factor": 0.5,
                }
            },
            "rope rotates 8 of 16 head dimensions",
        ),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "quantised by 'gptq'"),
    ],
)
def test_native(load, changes, message):
    with pytest.raises(ModelLoadError, match=message):
        load("native", **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "bert"}, "BertSelfAttention is not causal"),
        ({"model_type": "vit"}, "no causal language model of type 'vit'"),
        ({"model_type": "bart"}, "encoder-decoder"),
        ({"model_type": "mamba2", **SSM}, "mamba2 keeps a recurrent state"),
        ({"model_type": "rwkv", "head_dim": None}, "rwkv keeps a recurrent state"),
        ({"model_type": "bloom", "n_head": 4}, "bloom does not let its attention be replaced"),
        (
            {
                "model_type": "deepseek_v3",
                "first_k_dense_replace": 2,
                "num_key_value_heads": 4,
                "head_dim": None,
                **MLA,
            },
            "latent attention",
        ),
        ({"model_type": "gpt_oss", "num_local_experts": 2, "num_experts_per_tok": 1}, "attention sinks"),
        (
            {"model_type": "lfm2", "layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False},
            "layers of type conv",
        ),
        (
            {"model_type": "qwen3", "layer_types": ["chunked_attention", "full_attention"]},
            "layers of type chunked_attention",
        ),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "quantised by 'gptq'"),
    ],
)
def test_transformers(load, changes, message):
    with pytest.raises(ModelLoadError, match=message):
        load("transformers", **changes)


def test_unknown_model_type(load):
    with pytest.raises(ModelLoadError, match=r"config.json cannot be read: .*nonesuch"):
        load(model_type="nonesuch")


def test_config_of_the_wrong_kind(load):
    with pytest.raises(ModelLoadError, match=r"config.json cannot be read"):
        load(hidden_size="wide")
