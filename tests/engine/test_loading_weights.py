from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from decoding.errors import ModelLoadError
from engine.loading.checkpoint import Checkpoint, RandomTensors
from engine.loading.directory import read_directory
from engine.loading.weights import load_model
from engine.models.base import CausalModel
from engine.models.llama import LlamaModel
from engine.models.transformers_model import TransformersModel
from tests.paged import PagedRunner, PagedText

CPU = torch.device("cpu")
TOKENS = list(range(5, 45))
NORM = "model.norm.weight"


@pytest.fixture
def directory(tmp_path: Path, tiny_model_dir: Callable[..., Path]) -> Path:
    return Path(shutil.copytree(tiny_model_dir(), tmp_path / "model"))


def load(directory: Path, dtype: torch.dtype = torch.float32, **options: Any) -> CausalModel:
    return load_model(read_directory(directory, "m"), dtype=dtype, device=CPU, **options)


def logits(model: CausalModel) -> torch.Tensor:
    return PagedRunner(model).feed(PagedText(), TOKENS, [len(TOKENS)])


def change_weights(directory: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    tensors = load_file(directory / "model.safetensors")
    change(tensors)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})


def set_config(directory: Path, **changes: Any) -> None:
    path = directory / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_auto_is_native_where_the_family_is_known(directory, tiny_model_dir):
    assert isinstance(load(directory), LlamaModel)
    assert isinstance(load(directory, implementation="native"), LlamaModel)
    assert isinstance(load(directory, implementation="transformers"), TransformersModel)
    assert isinstance(load(tiny_model_dir(model_type="gemma2")), TransformersModel)


@pytest.mark.parametrize("implementation", ["native", "transformers"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtypes_differ_by_rounding_alone(directory, implementation, dtype):
    model = load(directory, dtype, implementation=implementation)
    got, want = logits(model), logits(load(directory))
    assert model.dtype == got.dtype == dtype
    tolerance = 1e-5 if dtype == torch.float64 else 0.2
    torch.testing.assert_close(got.double(), want.double(), atol=tolerance, rtol=0)


def test_shards_are_one_model(directory):
    want = logits(load(directory))
    tensors = load_file(directory / "model.safetensors")
    (directory / "model.safetensors").unlink()
    index = {name: f"part-{number % 3}.safetensors" for number, name in enumerate(tensors)}
    for part in set(index.values()):
        save_file({name: tensors[name] for name in tensors if index[name] == part}, directory / part, {"format": "pt"})
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    assert torch.equal(logits(load(directory)), want)

    (directory / "part-1.safetensors").unlink()
    with pytest.raises(ModelLoadError, match=r"part-1.safetensors is named in .* but does not exist"):
        load(directory)


@pytest.mark.parametrize("content", ["half a", "{}", "[]"])
def test_a_broken_index_is_named(directory, content):
    (directory / "model.safetensors").unlink()
    (directory / "model.safetensors.index.json").write_text(content)
    with pytest.raises(ModelLoadError, match=r"index.json cannot be read .*; fetch it again"):
        load(directory)


def test_missing_weights_are_named(directory):
    (directory / "model.safetensors").unlink()
    with pytest.raises(ModelLoadError, match=r"neither model.safetensors nor .*load format 'dummy'"):
        load(directory)


@pytest.mark.parametrize("implementation", ["native", "transformers"])
@pytest.mark.parametrize("size", [4, 1000, 100_000])
def test_a_truncated_file_is_named(directory, implementation, size):
    path = directory / "model.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ModelLoadError, match=str(directory)):
        load(directory, implementation=implementation)


@pytest.mark.parametrize("implementation", ["native", "transformers"])
def test_a_missing_tensor_is_named(directory, implementation):
    change_weights(directory, lambda tensors: tensors.pop("model.layers.1.mlp.up_proj.weight"))
    with pytest.raises(ModelLoadError, match=r"model.layers.1.mlp.up_proj.weight"):
        load(directory, implementation=implementation)


@pytest.mark.parametrize("implementation", ["native", "transformers"])
def test_tensors_that_nobody_uses_are_named(directory, implementation):
    change_weights(directory, lambda tensors: tensors.update({"model.layers.0.odd": torch.ones(2)}))
    with pytest.raises(ModelLoadError, match=r"model.layers.0.odd"):
        load(directory, implementation=implementation)


def test_the_list_of_leftovers_is_short(directory):
    set_config(directory, num_hidden_layers=1)
    with pytest.raises(ModelLoadError, match=r"model.layers.1.input_layernorm.weight, .* and 4 more; does config.json"):
        load(directory)


@pytest.mark.parametrize("implementation", ["native", "transformers"])
def test_a_misshapen_tensor_is_named(directory, implementation):
    change_weights(directory, lambda tensors: tensors.update({NORM: torch.ones(63)}))
    with pytest.raises(ModelLoadError, match=r"model.norm.weight[\s\S]*63"):
        load(directory, implementation=implementation)


def test_what_old_checkpoints_store_beside_is_skipped(directory):
    want = logits(load(directory))

    def add(tensors: dict[str, torch.Tensor]) -> None:
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(8)
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()

    change_weights(directory, add)
    assert torch.equal(logits(load(directory)), want)


@pytest.mark.parametrize("implementation", ["native", "transformers"])
def test_dummy_weights_need_a_configuration_alone(directory, implementation):
    (directory / "model.safetensors").unlink()
    first, again, other = (
        logits(load(directory, load_format="dummy", implementation=implementation, seed=seed)) for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)
    assert first.isfinite().all()


def test_random_tensors_keep_activations_in_size():
    source = RandomTensors(3, torch.float32, CPU)
    matrix = source.take("a.weight", (200, 400))
    assert abs(float(matrix.std()) - 400**-0.5) < 1e-3
    assert torch.equal(source.take("x.norm.weight", (4,)), torch.ones(4))
    assert source.parameters == 200 * 400 + 4


def test_checkpoint_counts_what_it_gave(directory):
    source = Checkpoint(directory, torch.float64, CPU)
    assert source.take(NORM, (64,)).dtype == torch.float64
    assert source.parameters == 64
    with pytest.raises(ModelLoadError, match="is missing"):
        source.take(NORM, (64,))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"implementation": "vllm"}, "implementation 'vllm' does not exist; choose one of auto, native, transformers"),
        ({"load_format": "pt"}, "load format 'pt' does not exist; choose one of auto, dummy"),
        ({"attention": "flash"}, "attention backend 'flash' does not exist; choose one of auto, reference"),
    ],
)
def test_unknown_choices_are_named(directory, options, message):
    with pytest.raises(ModelLoadError, match=message):
        load(directory, **options)
