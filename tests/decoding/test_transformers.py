"""Every stage against transformers' own processor, over whole distributions: log-probabilities of all tokens."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LogitsProcessorList
from transformers.generation import logits_process as theirs

from decoding.params import MAX_LOGPROBS, SamplingParams
from decoding.pipeline import LogitsPipeline
from decoding.rows import RowContext

V = MAX_LOGPROBS
EOS = (3, 17)
TOKENS = st.integers(0, V - 1)


def ours(logits: torch.Tensor, prompt: list[int], output: list[int], **params) -> dict[int, float]:
    """Log-probability of every token that can be drawn."""
    row = RowContext(params=SamplingParams(logprobs=V, **params), sample_index=0, prompt=prompt, output=output)
    (draw,) = LogitsPipeline(V, EOS).draw(logits[None], [row])
    return dict(draw.logprobs.top)


def expected(logits: torch.Tensor, prompt: list[int], output: list[int], processors: list) -> dict[int, float]:
    path = torch.tensor([[*prompt, *output]])
    scores = LogitsProcessorList(processors)(path, logits[None]).log_softmax(-1)[0]
    return {token: float(p) for token, p in enumerate(scores) if p > -math.inf}


def logits_of(seed: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(V) * 3)


SINGLE = {
    "temperature": ({"temperature": 0.6}, [theirs.TemperatureLogitsWarper(0.6)]),
    "top_k": ({"top_k": 5}, [theirs.TopKLogitsWarper(5)]),
    "top_p": ({"top_p": 0.7}, [theirs.TopPLogitsWarper(0.7)]),
    "min_p": ({"min_p": 0.1}, [theirs.MinPLogitsWarper(0.1)]),
    "repetition": ({"repetition_penalty": 1.7}, [theirs.RepetitionPenaltyLogitsProcessor(1.7)]),
    "encouraged repetition": ({"repetition_penalty": 0.6}, [theirs.RepetitionPenaltyLogitsProcessor(0.6)]),
    "bias": ({"logit_bias": {2: 1.5, 9: -4.0}}, [theirs.SequenceBiasLogitsProcessor({(2,): 1.5, (9,): -4.0})]),
    "bad words": (
        {"bad_words": ((4,), (5, 6), (8, 5, 7), (3,), (1, 2, 3))},
        [theirs.NoBadWordsLogitsProcessor([[4], [5, 6], [8, 5, 7], [3], [1, 2, 3]], list(EOS))],
    ),
    "min_tokens": ({"min_tokens": 4}, [theirs.MinNewTokensLengthLogitsProcessor(3, 4, list(EOS))]),
    "ignore_eos": ({"ignore_eos": True}, [theirs.SuppressTokensLogitsProcessor(list(EOS))]),
}


@pytest.mark.parametrize("stage", SINGLE)
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("output", [[], [5], [8, 5], [1, 1, 1, 1]])
def test_stage_equals_transformers(stage, seed, output):
    params, processors = SINGLE[stage]
    logits, prompt = logits_of(seed), [1, 8, 2]
    fast = ours(logits, prompt, output, **params)
    assert fast == pytest.approx(expected(logits, prompt, output, processors), abs=1e-9)


@given(
    seed=st.integers(0, 2**32),
    prompt=st.lists(TOKENS, min_size=1, max_size=5),
    output=st.lists(TOKENS, max_size=5),
    bias=st.dictionaries(TOKENS, st.integers(-20, 20).map(lambda quarters: quarters / 4), min_size=1, max_size=4),
    repetition=st.floats(0.5, 2),
    words=st.lists(st.lists(TOKENS, min_size=1, max_size=3), min_size=1, max_size=4),
    min_tokens=st.integers(0, 6),
    temperature=st.floats(0.1, 3),
    top_k=st.integers(1, 30),
    top_p=st.floats(0.05, 0.95),
    min_p=st.floats(0, 0.5),
)
@settings(max_examples=200)
def test_all_stages_in_order_equal_transformers(
    seed, prompt, output, bias, repetition, words, min_tokens, temperature, top_k, top_p, min_p
):
    logits = logits_of(seed)
    processors = [
        theirs.SequenceBiasLogitsProcessor({(token,): value for token, value in bias.items()}),
        theirs.RepetitionPenaltyLogitsProcessor(repetition),
        *(
            [theirs.NoBadWordsLogitsProcessor(words, list(EOS))]
            if any(tuple(w) not in {(3,), (17,)} for w in words)
            else []
        ),
        theirs.MinNewTokensLengthLogitsProcessor(len(prompt), min_tokens, list(EOS)),
        theirs.TemperatureLogitsWarper(temperature),
        theirs.TopKLogitsWarper(top_k),
        theirs.TopPLogitsWarper(top_p),
        theirs.MinPLogitsWarper(min_p),
    ]
    fast = ours(
        logits,
        prompt,
        output,
        logit_bias=bias,
        repetition_penalty=repetition,
        bad_words=tuple(map(tuple, words)),
        min_tokens=min_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
    )
    assert fast == pytest.approx(expected(logits, prompt, output, processors), abs=1e-9)


def test_presence_and_frequency_follow_the_published_formula():
    logits = logits_of(0)
    moved = logits.clone()
    for token, count in ((5, 3), (7, 1)):
        moved[token] -= 0.5 + 0.25 * count
    wanted = {token: float(p) for token, p in enumerate(moved.log_softmax(-1))}
    fast = ours(logits, [7, 9], [5, 5, 7, 5], presence_penalty=0.5, frequency_penalty=0.25)
    assert fast == pytest.approx(wanted, abs=1e-9)
