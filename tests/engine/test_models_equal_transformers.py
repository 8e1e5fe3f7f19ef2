"""Logits over the paged cache equal plain transformers', however the tokens are split into steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine.loading.directory import read_directory
from engine.loading.weights import load_model
from engine.models.base import CausalModel
from engine.models.llama import LlamaModel
from engine.models.transformers_model import TransformersModel
from tests.paged import PagedRunner, PagedText, Part
from tests.tiny_model import TINY_CONFIG

LENGTH = 150
TREE = (-1, 0, 1, 0, 3, 3, 1, 5, 7)


def rope(kind: str, **parameters: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **parameters}}


LLAMA3 = rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)
GPT2_SIZES = {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 512}
NATIVE: dict[str, dict[str, Any]] = {
    "smollm2": {},
    "llama": {"tie_word_embeddings": False},
    "llama-biases": {"attention_bias": True, "mlp_bias": True},
    "llama-mqa": {"num_key_value_heads": 1},
    "llama-mha": {"num_key_value_heads": 4},
    "llama-wide-heads": {"head_dim": 32},
    "llama-gelu": {"hidden_act": "gelu_pytorch_tanh"},
    "linear-rope": rope("linear", factor=4.0),
    "llama3-rope": LLAMA3,
    "yarn-rope": rope("yarn", factor=4.0, original_max_position_embeddings=128),
    "mistral": {"model_type": "mistral", "sliding_window": 24, "tie_word_embeddings": False},
    "mistral-full": {"model_type": "mistral", "sliding_window": None},
    "qwen2": {"model_type": "qwen2"},
    "qwen2-sliding": {
        "model_type": "qwen2",
        "use_sliding_window": True,
        "sliding_window": 24,
        "max_window_layers": 1,
        "num_hidden_layers": 3,
    },
    "qwen3": {"model_type": "qwen3", "tie_word_embeddings": False},
    "qwen3-layer-types": {
        "model_type": "qwen3",
        "attention_bias": True,
        "use_sliding_window": True,
        "sliding_window": 24,
        "layer_types": ["sliding_attention", "full_attention"],
    },
}
OTHERS: dict[str, dict[str, Any]] = {
    "gemma3": {
        "model_type": "gemma3_text",
        "num_hidden_layers": 3,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "sliding_window": 24,
        "query_pre_attn_scalar": 24,
        "hidden_activation": "gelu_pytorch_tanh",
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
        },
    },
    "gemma2": {
        "model_type": "gemma2",
        "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": 24,
        "query_pre_attn_scalar": 24,
        "attn_logit_softcapping": 2.0,
        "final_logit_softcapping": 3.0,
    },
    "gpt2": {"model_type": "gpt2", **GPT2_SIZES},
    "phi": {"model_type": "phi", "partial_rotary_factor": 0.5, "tie_word_embeddings": False},
    "granite": {
        "model_type": "granite",
        "logits_scaling": 4.0,
        "residual_multiplier": 0.5,
        "attention_multiplier": 0.1,
    },
    "gemma3-multimodal": {
        "model_type": "gemma3",
        "text_config": {
            **{name: value for name, value in TINY_CONFIG.items() if name not in ("model_type", "rope_parameters")},
            "model_type": "gemma3_text",
            "layer_types": ["sliding_attention", "full_attention"],
            "sliding_window": 24,
        },
        "vision_config": {
            "model_type": "siglip_vision_model",
            "hidden_size": 32,
            "intermediate_size": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "image_size": 28,
            "patch_size": 14,
        },
        "mm_tokens_per_image": 4,
    },
    "smollm3": {"model_type": "smollm3", "no_rope_layers": [1, 0], "pad_token_id": 0},
    "mixtral": {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None},
}
CASES = [
    *(pytest.param(("native", overrides), id=f"native-{name}") for name, overrides in NATIVE.items()),
    *(pytest.param(("transformers", overrides), id=name) for name, overrides in {**NATIVE, **OTHERS}.items()),
]


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest, tiny_model_dir: Callable[..., Path]) -> tuple[CausalModel, torch.nn.Module]:
    implementation, overrides = request.param
    return load_both(tiny_model_dir(**overrides), implementation)


def load_both(directory: Path, implementation: str, dtype: torch.dtype = torch.float32) -> tuple[CausalModel, Any]:
    files = read_directory(directory, "tiny")
    model = load_model(files, dtype=dtype, device=torch.device("cpu"), implementation=implementation)
    assert isinstance(model, LlamaModel if implementation == "native" else TransformersModel)
    plain = AutoModelForCausalLM.from_pretrained(directory, dtype=dtype, attn_implementation="eager")
    return model, plain.eval().requires_grad_(requires_grad=False)


def plain_logits(plain: Any, tokens: list[int]) -> torch.Tensor:
    return plain(torch.tensor([tokens]), use_cache=False).logits[0]


def some_tokens(count: int = LENGTH, seed: int = 0) -> list[int]:
    return torch.randint(3, 500, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param([LENGTH], id="whole"),
        pytest.param([40, 40, 70], id="chunks"),
        pytest.param([65, 80, 5], id="long-chunks"),
        pytest.param([30] + [1] * (LENGTH - 30), id="decode"),
    ],
)
def test_steps_equal_plain(case, sizes):
    model, plain = case
    tokens = some_tokens()
    got = PagedRunner(model).feed(PagedText(), tokens, sizes)
    torch.testing.assert_close(got, plain_logits(plain, tokens), atol=1e-4, rtol=0)


@pytest.mark.parametrize("context", [0, 20, 70])
def test_every_path_of_a_tree_equals_its_chain(case, context):
    model, plain = case
    prefix, nodes = some_tokens(context), some_tokens(len(TREE), seed=1)
    runner, text = PagedRunner(model), PagedText()
    if context:
        runner.feed(text, prefix, [context])
    (got,) = runner.step(Part(text, nodes, TREE))
    for node in range(len(TREE)):
        path, above = [], node
        while above >= 0:
            path.insert(0, nodes[above])
            above = TREE[above]
        want = plain_logits(plain, prefix + path)[-1]
        torch.testing.assert_close(got[node], want, atol=1e-4, rtol=0)


def test_mixed_batch_equals_plain(case):
    model, plain = case
    tokens = [some_tokens(seed=seed) for seed in range(4)]
    runner, texts = PagedRunner(model), [PagedText() for _ in range(4)]
    runner.step(Part(texts[0], tokens[0][:90]), Part(texts[1], tokens[1][:17]), Part(texts[2], tokens[2][:40]))
    parts = [
        Part(texts[0], tokens[0][90:91]),
        Part(texts[1], tokens[1][17:]),
        Part(texts[2], tokens[2][40:43], (-1, 0, 1)),
        Part(texts[3], tokens[3][:70]),
    ]
    got = runner.step(*parts)
    for logits, (start, stop), row in zip(got, [(90, 91), (17, LENGTH), (40, 43), (0, 70)], tokens, strict=True):
        want = plain_logits(plain, row[:stop])[start:]
        torch.testing.assert_close(logits, want, atol=1e-4, rtol=0)


def test_model_card(case):
    model, plain = case
    assert model.architecture == plain.config.model_type
    assert model.parameters == sum(parameter.numel() for parameter in plain.parameters())
    text = plain.config.get_text_config()
    assert model.vocab_size == text.vocab_size
    assert model.context_length == text.max_position_embeddings
    assert len(model.kv_shapes) == text.num_hidden_layers
