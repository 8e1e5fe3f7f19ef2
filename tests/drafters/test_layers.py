"""Building blocks of the heads against torch and transformers."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from drafters.heads.layers import Linear
from drafters.heads.rope import Rope, rotate


@pytest.mark.parametrize("bias", [True, False])
def test_single_bfloat16_rows_equal_the_matrix_product(bias):
    layer, x = Linear(48, 33, bias=bias).to(torch.bfloat16), torch.randn(3, 48, dtype=torch.bfloat16)
    with torch.no_grad():
        for row in x:
            expected = functional.linear(row[None].float(), layer.weight.float(), layer.bias.float() if bias else None)
            torch.testing.assert_close(layer(row[None]).float(), expected, atol=2e-2, rtol=2e-2)
    layer(x[:1]).sum().backward()  # in training the ordinary product runs
    assert layer.weight.grad is not None


SCALINGS = [
    {"rope_theta": 10000.0},
    {"rope_theta": 500000.0, "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    {
        "rope_theta": 500000.0,
        "max_position_embeddings": 131072,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    },
    {
        "max_position_embeddings": 32768,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    },
]


@pytest.mark.parametrize("config", SCALINGS)
def test_rotations_equal_those_of_transformers(config):
    rope = Rope.from_config(config, hidden_size=64, num_heads=4, head_dim=16)
    reference = LlamaRotaryEmbedding(
        LlamaConfig.from_dict({**config, "hidden_size": 64, "num_attention_heads": 4, "head_dim": 16})
    )
    x, positions = torch.randn(5, 4, 16), torch.tensor([0, 1, 7, 300, 5000])
    cos, sin = reference(x, positions[None])
    expected, _ = apply_rotary_pos_emb(x[None], x[None], cos, sin, unsqueeze_dim=2)
    torch.testing.assert_close(rotate(x, *rope.rotation(positions, torch.float32)), expected[0])
