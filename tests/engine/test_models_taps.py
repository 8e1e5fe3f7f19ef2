"""What draft heads and early exits read of a model equals what transformers shows of its own."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM

from decoding.errors import ModelLoadError
from engine.kv_cache import KVCache
from engine.loading.directory import read_directory
from engine.loading.weights import load_model
from engine.models.llama import LlamaModel
from tests.paged import PagedText, Part, forward_input

TOKENS = [3, 70, 200, 5, 41, 9, 300, 8]
BLOCKS = 2
GEMMA = {"model_type": "gemma3_text", "query_pre_attn_scalar": 24, "hidden_activation": "gelu_pytorch_tanh"}


def step(model, tokens=TOKENS):
    text = PagedText()
    text.table.extend(range(BLOCKS))
    return forward_input([Part(text, tokens)], model.device)


def cache_of(model):
    return KVCache(model.kv_shapes, BLOCKS, model.dtype, model.device)


@pytest.mark.parametrize(
    "overrides", [{"num_hidden_layers": 4}, {"num_hidden_layers": 4, **GEMMA}], ids=["native", "other"]
)
def test_taps_are_the_inputs_of_their_layers(tiny_model_dir, overrides):
    directory = tiny_model_dir(**overrides)
    model = load_model(read_directory(directory, "tiny"), dtype=torch.float32, device=torch.device("cpu"))
    assert isinstance(model, LlamaModel) == ("model_type" not in overrides)
    with torch.inference_mode():
        plain = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
        states = plain(torch.tensor([TOKENS]), output_hidden_states=True).hidden_states
        hidden = model.hidden(step(model), cache_of(model), taps=(3, 0, 2))
        bare = model.hidden(step(model), cache_of(model))
        embedded = model.embed(torch.tensor(TOKENS))
    for tap, layer in zip(hidden.taps_TE, (3, 0, 2), strict=True):
        torch.testing.assert_close(tap, states[layer][0], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(hidden.final_TE, states[-1][0], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(embedded, states[0][0])
    if isinstance(model, LlamaModel):
        with torch.inference_mode():
            (last,) = model.hidden(step(model), cache_of(model), taps=(4,)).taps_TE
        torch.testing.assert_close(plain.model.norm(last), hidden.final_TE, atol=1e-4, rtol=1e-4)
    else:
        with torch.inference_mode(), pytest.raises(ModelLoadError, match="output of the last layer"):
            model.hidden(step(model), cache_of(model), taps=(4,))
    assert bare.taps_TE == ()
    assert torch.equal(bare.final_TE, hidden.final_TE)


def test_an_early_exit_is_the_model_without_its_later_layers(tiny_model_dir):
    files = read_directory(tiny_model_dir(num_hidden_layers=4), "tiny")
    model = load_model(files, dtype=torch.float64, device=torch.device("cpu"))
    assert isinstance(model, LlamaModel)
    with torch.inference_mode():
        early, whole = cache_of(model), cache_of(model)
        exits = model.early_hidden(step(model), early, num_layers=2)
        model.hidden(step(model), whole)
        plain = AutoModelForCausalLM.from_pretrained(tiny_model_dir(num_hidden_layers=4), dtype=torch.float64)
        plain.model.layers = plain.model.layers[:2]
        want = plain(torch.tensor([TOKENS]), output_hidden_states=True).hidden_states[-1][0]
    torch.testing.assert_close(exits, want, atol=1e-5, rtol=1e-5)  # its rotation is float32
    for layer, (keys, all_keys) in enumerate(zip(early.keys, whole.keys, strict=True)):
        assert torch.equal(keys, all_keys) == (layer < 2)
