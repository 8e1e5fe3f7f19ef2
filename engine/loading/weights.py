"""Builds a model from its files: the native decoder where it knows the family, else transformers' own code.

Invariant: what this returns has computed nothing yet but holds every weight.
"""

from __future__ import annotations

import torch
from transformers.activations import ACT2FN

from decoding.errors import ModelLoadError
from engine.attention.factory import make_attention
from engine.loading.checkpoint import Checkpoint, RandomTensors
from engine.loading.files import ModelFiles
from engine.loading.transformers_weights import load_transformers
from engine.models.base import CausalModel
from engine.models.config import NATIVE_MODEL_TYPES, ModelConfig, read_transformers_config
from engine.models.llama import LlamaModel
from engine.models.llama_weights import read_decoder_weights
from engine.models.transformers_model import TransformersModel
from engine.models.transformers_probe import probe

IMPLEMENTATIONS = ("auto", "native", "transformers")
LOAD_FORMATS = ("auto", "dummy")


def load_model(
    files: ModelFiles,
    *,
    dtype: torch.dtype,
    device: torch.device,
    load_format: str = "auto",
    implementation: str = "auto",
    seed: int = 0,
    attention: str = "auto",
) -> CausalModel:
    """Load the model in ``files.directory``.

    Args:
        files: what `engine.loading.resolve.resolve_model` found.
        dtype: float32, bfloat16, float16, or float64 for tests.
        device: where weights and KV cache live.
        load_format: ``auto`` reads safetensors, ``dummy`` draws weights from ``seed``.
        implementation: one of `IMPLEMENTATIONS`; ``auto`` is native where the family is known.
        seed: of dummy weights.
        attention: one of `engine.attention.factory.ATTENTION_CHOICES`.

    Raises ModelLoadError with the reason and its mend.
    """
    _choose("implementation", implementation, IMPLEMENTATIONS)
    _choose("load format", load_format, LOAD_FORMATS)
    backend = make_attention(attention, device)
    config = read_transformers_config(files.directory)
    if implementation == "transformers" or (implementation == "auto" and config.model_type not in NATIVE_MODEL_TYPES):
        model = load_transformers(files, config, dtype=dtype, device=device, load_format=load_format, seed=seed)
        return TransformersModel(model, backend, probe(model, backend))
    native = ModelConfig.from_transformers(config)
    source = (
        RandomTensors(seed, dtype, device) if load_format == "dummy" else Checkpoint(files.directory, dtype, device)
    )
    return LlamaModel(native, read_decoder_weights(native, source), backend, ACT2FN[native.activation])


def _choose(what: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ModelLoadError(f"{what} {value!r} does not exist; choose one of {', '.join(choices)}")
