from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from decoding.errors import ModelLoadError
from engine.loading.directory import read_directory
from engine.loading.gguf_config import config_from_gguf
from engine.loading.gguf_convert import convert_gguf
from engine.loading.progress import NoProgress
from engine.loading.weights import load_model
from tests.paged import PagedRunner, PagedText
from tests.tiny_gguf import write_tiny_gguf

TEXTS = (
    "Numbers 12345 and 3.14, \uff11\uff12 \u00b2\u00b3 \u2167 x9",
    "a\n\n  b\t c   \r\n",
    "<|im_start|>user\nhi<|im_end|>\n",
    '{"name": "東京🌳", "n": -0.5e3}',
    "I'll it's we'RE\x00\x7f",
)


@pytest.fixture
def converted(tmp_path: Path, tiny_model_dir: Callable[..., Path]) -> Callable[..., tuple[Path, Path]]:
    """(original directory, directory converted from its GGUF file)."""

    def convert(overrides: dict[str, Any] | None = None, **options: Any) -> tuple[Path, Path]:
        source = tiny_model_dir(**(overrides or {}))
        write_tiny_gguf(source, tmp_path / "tiny.gguf", **options)
        target = tmp_path / "converted"
        target.mkdir()
        convert_gguf(tmp_path / "tiny.gguf", target, NoProgress())
        return source, target

    return convert


def weights(directory: Path) -> dict[str, torch.Tensor]:
    return {name: tensor for path in directory.glob("*.safetensors") for name, tensor in load_file(path).items()}


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"tie_word_embeddings": False, "num_key_value_heads": 4},
        {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]},
        {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]},
    ],
    ids=["llama", "llama-untied", "qwen2", "qwen3"],
)
def test_float_weights_survive_bit_for_bit(converted, overrides):
    source, target = converted(overrides)
    got, want = weights(target), weights(source)
    assert got.keys() == want.keys()
    assert all(torch.equal(got[name], want[name]) for name in want)


@pytest.mark.parametrize(
    "matrices", [gguf.GGMLQuantizationType.Q4_1, gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.F16]
)
def test_quantised_weights_are_exactly_dequantised(converted, matrices):
    source, target = converted(matrices=matrices)
    got = weights(target)
    for name, tensor in weights(source).items():
        want = gguf.dequantize(gguf.quantize(tensor.numpy(), matrices), matrices) if tensor.dim() == 2 else tensor
        np.testing.assert_array_equal(got[name].numpy(), want)


def test_config_survives(converted):
    source, target = converted()
    got, want = (json.loads((directory / "config.json").read_text()) for directory in (target, source))
    assert {name: got[name] for name in want} == want


def test_rope_scaling_and_sliding_window_are_read(converted):
    _, target = converted(
        metadata={
            "llama.rope.scaling.type": "yarn",
            "llama.rope.scaling.factor": 4.0,
            "llama.rope.scaling.original_context_length": 256,
            "llama.attention.sliding_window": 24,
        }
    )
    config = json.loads((target / "config.json").read_text())
    assert config["model_type"] == "mistral"
    assert config["sliding_window"] == 24
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256, "rope_theta": 10000.0}
    assert config["rope_parameters"] == rope


def test_logits_are_those_of_the_original(converted):
    source, target = converted()
    tokens = list(range(5, 85))
    logits = []
    for directory in (source, target):
        files = read_directory(directory, "tiny")
        model = load_model(files, dtype=torch.float32, device=torch.device("cpu"))
        logits.append(PagedRunner(model).feed(PagedText(), tokens, [80]))
    assert torch.equal(*logits)


def test_tokenizer_is_that_of_the_original(converted):
    source, target = converted()
    got, want = (Tokenizer.from_file(str(directory / "tokenizer.json")) for directory in (target, source))
    assert got.get_vocab() == want.get_vocab()
    assert got.get_added_tokens_decoder() == want.get_added_tokens_decoder()
    for text in TEXTS:
        assert got.encode(text).ids == want.encode(text).ids
        assert got.decode(got.encode(text).ids, skip_special_tokens=False) == text
    assert got.decode(got.encode(TEXTS[2]).ids) == "user\nhi\n"


def test_template_and_ends_survive(converted):
    _, target = converted(metadata={"tokenizer.ggml.eot_token_id": 0})
    files = read_directory(target, "tiny")
    assert files.chat_template == "{{ messages }}"
    assert files.eos_token_ids == (0, 2)
    assert files.bos_token_id is None


def test_beginning_of_text_is_added_where_the_file_says_so(converted):
    _, target = converted(metadata={"tokenizer.ggml.add_bos_token": True})
    assert read_directory(target, "tiny").bos_token_id == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pre": "bailing"}, "cuts text by 'bailing'"),
        ({"metadata": {"general.architecture": "mamba"}}, "architecture 'mamba' are not supported, only llama"),
        ({"metadata": {"llama.expert_count": 8}}, "mixture of experts"),
        ({"metadata": {"llama.rope.scaling.type": "longrope"}}, "rope scaling 'longrope'"),
        ({"metadata": {"llama.block_count": None}}, "lacks the metadata 'block_count'"),
        ({"extra_tensors": {"rope_freqs.weight": np.ones(8, np.float32)}}, "rope_freqs.weight"),
        ({"extra_tensors": {"blk.0.odd.weight": np.ones(8, np.float32)}}, "'blk.0.odd.weight' that is unknown"),
        ({"extra_tensors": {"odd": np.ones(8, np.float32)}}, "'odd' that is unknown"),
    ],
)
def test_what_would_be_wrong_is_refused(converted, options, message):
    with pytest.raises(ModelLoadError, match=message):
        converted(**options)


def test_a_truncated_file_is_named(tmp_path, tiny_model_dir):
    path = tmp_path / "tiny.gguf"
    write_tiny_gguf(tiny_model_dir(), path)
    path.write_bytes(path.read_bytes()[:100_000])
    with pytest.raises(ModelLoadError, match=r"tiny.gguf is no readable GGUF file .*fetch it again"):
        convert_gguf(path, tmp_path, NoProgress())
    path.write_text("<html>not found</html>")
    with pytest.raises(ModelLoadError, match=r"tiny.gguf is no readable GGUF file"):
        convert_gguf(path, tmp_path, NoProgress())


def test_many_shards(monkeypatch, converted):
    monkeypatch.setattr("engine.loading.gguf_convert._SHARD_BYTES", 100_000)
    source, target = converted()
    assert len(list(target.glob("model-*.safetensors"))) > 2
    assert weights(target).keys() == weights(source).keys()
    load_model(read_directory(target, "tiny"), dtype=torch.float32, device=torch.device("cpu"))


def test_float32_metadata_becomes_the_shortest_decimal():
    metadata = {
        "general.architecture": "llama",
        "llama.attention.head_count": 2,
        "llama.embedding_length": 8,
        "llama.feed_forward_length": 8,
        "llama.block_count": 1,
        "llama.context_length": 16,
        "llama.attention.layer_norm_rms_epsilon": float(np.float32(1e-5)),
        "llama.rope.freq_base": float(np.float32(1e5)),
        "tokenizer.ggml.tokens": ["a"],
    }
    config = config_from_gguf(metadata, set())
    assert config["rms_norm_eps"] == 1e-5
    assert config["rope_parameters"]["rope_theta"] == 1e5
    assert config["head_dim"] == 4
    assert config["num_key_value_heads"] == 2
