"""The engine on a real decoder in float64: what the toy model cannot show, through real attention and real KV."""

from __future__ import annotations

import pytest
import torch
from tokenizers import Tokenizer

from decoding.params import SamplingParams
from engine.build import build_engine
from engine.config import EngineConfig
from engine.loading.files import ModelFiles
from engine.request import GenerationRequest

TEXTS = (
    "The quick brown fox",
    "An espalier is a tree trained along a frame, so that its branches grow where the gardener wants them to be.",
    '{"name": "Ada Lovelace", "age": 36, "email": ',
    "1",
)


@pytest.fixture(scope="module")
def files(tiny_model_dir) -> ModelFiles:
    directory = tiny_model_dir()
    return ModelFiles(
        name="tiny",
        directory=directory,
        tokenizer=directory / "tokenizer.json",
        chat_template=None,
        eos_token_ids=(0, 2),
        bos_token_id=1,
    )


def build(files: ModelFiles, **config):
    defaults = {"reproducible_drafts": True, "dtype": "float64", "device": "cpu", "kv_cache_tokens": 4096}
    return build_engine(EngineConfig(**(defaults | config)), files)


def requests(files: ModelFiles) -> list[GenerationRequest]:
    tokenizer = Tokenizer.from_file(str(files.tokenizer))
    nucleus = {"temperature": 0.8, "top_p": 0.9, "logprobs": 3}
    settings = ({"temperature": 0.0}, {"temperature": 1.0, "seed": 3}, nucleus)
    return [
        GenerationRequest(
            request_id=f"{index}-{number}",
            prompt=tuple(tokenizer.encode(text).ids),
            params=SamplingParams(max_tokens=12, ignore_eos=True, **setting),
        )
        for index, text in enumerate(TEXTS)
        for number, setting in enumerate(settings)
    ]


def outputs(toy, engine, batch) -> dict:
    for request in batch:
        engine.submit(request)
    return {key: (result.tokens, result.logprobs) for key, result in toy.run(engine).items()}


@pytest.fixture(scope="module")
def alone(toy, files):
    engine = build(files, chunked_prefill=False, prefix_cache=False)
    expected: dict = {}
    for request in requests(files):
        expected |= outputs(toy, engine, [request])
    return expected


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"max_batch_tokens": 5, "max_running": 4},
        {"kv_cache_tokens": 160, "max_running": 12, "watermark": 0.0},
        {"max_running": 3, "chunked_prefill": False},
    ],
    ids=["batched", "chunked", "preempted", "unchunked"],
)
def test_tokens_equal_those_of_each_request_alone(toy, files, alone, config):
    engine = build(files, **config)
    results = outputs(toy, engine, requests(files))
    assert {key: tokens for key, (tokens, _) in results.items()} == {key: tokens for key, (tokens, _) in alone.items()}
    for key, (_, logprobs) in results.items():
        for got, wanted in zip(logprobs, alone[key][1], strict=True):
            assert got.token == pytest.approx(wanted.token, abs=1e-9)
    if config.get("kv_cache_tokens") == 160:
        assert engine.stats().totals.preemptions > 0


def test_a_second_pass_hits_the_cache_and_says_the_same(toy, files, alone):
    engine = build(files)
    outputs(toy, engine, requests(files))
    again = outputs(toy, engine, requests(files))
    assert engine.stats().totals.prefix_hit_tokens > 0
    assert {key: tokens for key, (tokens, _) in again.items()} == {key: tokens for key, (tokens, _) in alone.items()}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_hit_gives_bit_equal_logits_to_a_miss_where_chunk_boundaries_are_the_same(files, dtype, monkeypatch):
    engine = build(files, dtype=dtype, max_batch_tokens=48)
    seen: list[torch.Tensor] = []
    forward = engine._runner.forward

    def keep(batch):
        outputs = forward(batch)
        seen.append(outputs.logits_RV)
        return outputs

    monkeypatch.setattr(engine._runner, "forward", keep)
    prompt = tuple(3 + index * 7 % 500 for index in range(50))
    for name, cached in (("miss", 0), ("hit", 48)):  # chunks of 48 and 2, then 48 cached and a chunk of 2
        engine.submit(GenerationRequest(request_id=name, prompt=prompt, params=SamplingParams(max_tokens=1)))
        events = [event for _ in range(3) for event in engine.step()]
        assert events[-1].finish.usage.cached == cached
    miss, hit = (logits for logits in seen if len(logits))
    assert torch.equal(miss, hit)
