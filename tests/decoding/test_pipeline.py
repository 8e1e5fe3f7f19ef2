from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.masks import MaskRow
from decoding.params import SamplingParams
from decoding.pipeline import LogitsPipeline
from decoding.rows import Draw, RowContext

PADDING = 3


def tokens(vocab_size, **sizes):
    return st.lists(st.integers(0, vocab_size - 1), **sizes)


@st.composite
def parameters(draw, vocab_size):
    neutral = st.floats(0.1, 3) | st.just(1.0)
    penalty = st.floats(-2, 2) | st.just(0.0)
    words = st.lists(tokens(vocab_size, min_size=1, max_size=3).map(tuple), max_size=4)
    return SamplingParams(
        max_tokens=100,
        min_tokens=draw(st.sampled_from([0, 0, 2, 100])),
        temperature=draw(st.sampled_from([0.0, 0.0, 1.0, 1.0, 0.7, 1e-30, 100.0]) | st.floats(0, 100)),
        top_k=draw(st.sampled_from([0, 0, 1, 5, 50, 10**6])),
        top_p=draw(st.sampled_from([1.0, 1.0, 0.5, 0.9, 1e-9, 0.999999]) | st.floats(1e-6, 1)),
        min_p=draw(st.sampled_from([0.0, 0.0, 1.0, 0.05]) | st.floats(0, 1)),
        repetition_penalty=draw(st.just(1.0) | neutral),
        presence_penalty=draw(st.just(0.0) | penalty),
        frequency_penalty=draw(st.just(0.0) | penalty),
        logit_bias=draw(
            st.just({}) | st.dictionaries(st.integers(0, vocab_size - 1), st.floats(-100, 100), max_size=5)
        ),
        bad_words=tuple(draw(st.just([]) | words)),
        seed=draw(st.integers(0, 2**64 - 1)),
        logprobs=draw(st.sampled_from([None, None, 0, 1, 5, 20])),
        ignore_eos=draw(st.sampled_from([False, False, True])),
    )


@st.composite
def batches(draw):
    """(vocabulary size, end-of-sequence ids, logits, rows), from one token to widths past the short lists."""
    vocab_size = draw(st.sampled_from([1, 2, 5, 40, 257, 1000, 2500]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    count = draw(st.integers(1, 4))
    logits = rng.standard_normal((count, vocab_size + PADDING)) * draw(st.sampled_from([0.0, 0.3, 4.0, 200.0]))
    if draw(st.booleans()):
        logits = np.round(logits)  # equal logits
    logits = logits.astype(draw(st.sampled_from([np.float32, np.float64])))
    special = st.sampled_from([-np.inf, -np.inf, np.inf, np.nan, 1e38, -1e38])
    for token in draw(tokens(vocab_size, max_size=2)):
        logits[draw(st.integers(0, count - 1)), token] = draw(special)
    logits[:, vocab_size:] = 1e9
    eos = tuple(draw(tokens(vocab_size, max_size=2, unique=True)))
    rows = []
    for _ in range(count):
        share = draw(st.sampled_from([None, None, 0.01, 0.3, 0.99]))
        legal = {draw(st.integers(0, vocab_size - 1)), *np.flatnonzero(rng.random(vocab_size) < (share or 0)).tolist()}
        context = RowContext(
            params=draw(parameters(vocab_size)),
            sample_index=draw(st.integers(0, 100)),
            prompt=tuple(draw(tokens(vocab_size, max_size=4))),
            output=draw(tokens(vocab_size, max_size=4)),
            mask=None if share is None else MaskRow.from_ids(legal, vocab_size),
        )
        rows.append(context)
    return vocab_size, eos, torch.from_numpy(logits), rows


def assert_equal(fast: Draw, slow: Draw) -> None:
    assert fast.token == slow.token
    assert (fast.error is None) == (slow.error is None)
    assert (fast.logprobs is None) == (slow.logprobs is None)
    if fast.logprobs is not None:
        assert fast.logprobs.token == pytest.approx(slow.logprobs.token, rel=1e-12, abs=1e-12)
        assert [token for token, _ in fast.logprobs.top] == [token for token, _ in slow.logprobs.top]
        assert [p for _, p in fast.logprobs.top] == pytest.approx(
            [p for _, p in slow.logprobs.top], rel=1e-12, abs=1e-12
        )


@given(batches())
@settings(max_examples=400)
def test_pipeline_equals_the_twin(twin, batch):
    vocab_size, eos, logits_RV, rows = batch
    before = logits_RV.clone()
    drawn = LogitsPipeline(vocab_size, eos).draw(logits_RV, rows)
    assert torch.equal(logits_RV.nan_to_num(nan=7.0), before.nan_to_num(nan=7.0))
    for logits_V, row, fast in zip(logits_RV.numpy(), rows, drawn, strict=True):
        assert_equal(fast, twin(logits_V, row, vocab_size, eos))
        if fast.token is not None and row.mask is not None:
            assert fast.token in row.mask


@given(batches(), st.randoms())
@settings(max_examples=150)
def test_a_row_alone_equals_the_row_in_a_batch_bit_for_bit(batch, random):
    vocab_size, eos, logits_RV, rows = batch
    pipeline = LogitsPipeline(vocab_size, eos)
    together = pipeline.draw(logits_RV, rows)
    order = random.sample(range(len(rows)), len(rows))
    assert pipeline.draw(logits_RV[order], [rows[index] for index in order]) == [together[index] for index in order]
    for index, row in enumerate(rows):
        assert pipeline.draw(logits_RV[index : index + 1], [row]) == [together[index]]


@pytest.mark.parametrize("cut", [{}, {"top_p": 0.8}])
def test_padding_beside_longer_rows_changes_no_bit(cut):
    rng = np.random.default_rng(1)
    logits_RV = torch.from_numpy(rng.standard_normal((40, 300)))
    rows = [
        row(MaskRow.from_ids(rng.choice(300, 6 * size + 1, replace=False).tolist(), 300), seed=size, logprobs=3, **cut)
        for size in range(40)
    ]
    pipeline = LogitsPipeline(300, ())
    together = pipeline.draw(logits_RV, rows)
    assert together == [pipeline.draw(logits_RV[at : at + 1], [context])[0] for at, context in enumerate(rows)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@given(batches())
@settings(max_examples=60)
def test_half_precision_is_read_as_float32(dtype, batch):
    vocab_size, eos, logits_RV, rows = batch
    pipeline = LogitsPipeline(vocab_size, eos)
    half = logits_RV.to(dtype)
    assert pipeline.draw(half, rows) == pipeline.draw(half.float(), rows)


@pytest.mark.parametrize("scale", [0.0, 1.0, 5.0])
@pytest.mark.parametrize("choice", [{}, {"top_p": 0.9}, {"top_k": 50, "top_p": 0.9}, {"min_p": 0.05}])
def test_a_real_vocabulary_width_equals_the_twin(twin, scale, choice):
    vocab_size = 49_152
    rng = np.random.default_rng(5)
    logits_RV = torch.from_numpy((rng.standard_normal((3, vocab_size)) * scale).astype(np.float32)).bfloat16().float()
    mask = MaskRow.from_ids(np.flatnonzero(rng.random(vocab_size) < 0.9).tolist(), vocab_size)
    rows = [
        RowContext(
            params=SamplingParams(seed=seed, logprobs=3, **choice), sample_index=0, prompt=(1,), output=(), mask=mask
        )
        for seed in range(3)
    ]
    drawn = LogitsPipeline(vocab_size, (0,)).draw(logits_RV, rows)
    for logits_V, row, fast in zip(logits_RV.numpy(), rows, drawn, strict=True):
        assert_equal(fast, twin(logits_V, row, vocab_size, (0,)))


def row(mask=None, output=(), prompt=(9,), **params):
    return RowContext(params=SamplingParams(**params), sample_index=0, prompt=prompt, output=output, mask=mask)


def draw_one(logits, context, eos=(0,), vocab_size=None):
    return LogitsPipeline(vocab_size or len(logits), eos).draw(torch.tensor([logits]), [context])[0]


def test_greedy_takes_the_lowest_id_among_equals():
    assert draw_one([1.0, 3.0, 3.0, 2.0], row(temperature=0)).token == 1
    assert draw_one([1.0, 3.0, 3.0, 3.0], row(MaskRow.from_ids([2, 3], 4), temperature=0)).token == 2


def test_the_padded_tail_is_never_drawn():
    logits = [0.0, 1.0, 50.0, 50.0]
    assert draw_one(logits, row(temperature=0), vocab_size=2).token == 1
    assert {draw_one(logits, row(seed=seed), vocab_size=2).token for seed in range(50)} == {0, 1}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_no_legal_token_is_no_token_and_no_error(temperature):
    only_eos = MaskRow.from_ids([0], 3)
    for against in ({"ignore_eos": True}, {"min_tokens": 1}, {"bad_words": ((9, 0),)}):
        assert draw_one([0.0, 1.0, 2.0], row(only_eos, temperature=temperature, **against)) == Draw(token=None)
    assert draw_one([-math.inf] * 3, row(temperature=temperature)) == Draw(token=None)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_not_finite_fail_their_own_row_only(temperature, bad):
    logits = torch.tensor([[0.0, bad, 1.0], [0.0, 0.0, 9.0]])
    broken, whole = LogitsPipeline(3, ()).draw(logits, [row(temperature=temperature)] * 2)
    assert broken.token is None
    assert "not finite" in broken.error
    assert whole == Draw(token=2)


def test_a_number_that_is_not_finite_at_a_forbidden_token_does_not_matter():
    wide = [0.0, math.nan, 5.0, math.inf] + [1.0] * 1000
    masks = [MaskRow.from_ids([0, 2], 1004), MaskRow.from_ids([0, 2, *range(4, 1004)], 1004)]
    masks.append(MaskRow.from_ids([0, 2, *range(4, 700)], 1004))
    for mask in masks:
        assert draw_one(wide, row(mask, temperature=0)).token == 2
        assert draw_one(wide, row(mask, temperature=0.01)).token == 2


def test_min_tokens_counts_the_output_of_the_path():
    logits = [9.0, 1.0]
    assert draw_one(logits, row(temperature=0, min_tokens=2, output=(1,))).token == 1
    assert draw_one(logits, row(temperature=0, min_tokens=2, output=(1, 1))).token == 0


def test_a_bad_word_may_begin_in_the_prompt():
    logits = [0.0, 1.0, 9.0]
    assert draw_one(logits, row(temperature=0, prompt=(1,), bad_words=((1, 2),))).token == 1
    assert draw_one(logits, row(temperature=0, prompt=(0,), bad_words=((1, 2),))).token == 2
    assert draw_one(logits, row(temperature=0, prompt=(1,), output=(0,), bad_words=((1, 0, 2),))).token == 1
    assert draw_one(logits, row(temperature=0, prompt=(1,), output=(0,), bad_words=((1, 2),))).token == 2


def test_a_bad_word_that_is_an_end_of_sequence_token_is_passed_over():
    assert draw_one([9.0, 1.0], row(temperature=0, bad_words=((0,),))).token == 0
    assert draw_one([1.0, 9.0], row(temperature=0, bad_words=((1,),))).token == 0


def test_greedy_log_probabilities_are_those_of_temperature_one():
    drawn = draw_one([0.0, 1.0, 2.0], row(MaskRow.from_ids([0, 1], 3), temperature=0, logprobs=2, top_k=1))
    low, high = -math.log(1 + math.e), 1 - math.log(1 + math.e)
    assert drawn.token == 1
    assert drawn.logprobs.token == pytest.approx(high)
    assert [token for token, _ in drawn.logprobs.top] == [1, 0]
    assert [p for _, p in drawn.logprobs.top] == pytest.approx([high, low])


@given(st.integers(0, 2**64 - 1), st.sets(st.integers(0, 39), min_size=1))
def test_removing_other_candidates_does_not_change_a_draw(seed, others):
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal(40).tolist()
    free = draw_one(logits, row(seed=seed)).token
    masked = row(MaskRow.from_ids([free, *others], 40), seed=seed)
    assert draw_one(logits, masked).token == free


def test_a_draw_depends_on_seed_sample_and_position_alone():
    logits = [0.0] * 200
    context = row(seed=3, prompt=(1, 2), output=(3,))
    base = draw_one(logits, context).token
    assert draw_one(logits, replace(context, prompt=(5,), output=(6, 7))).token == base
    changed = [
        replace(context, params=SamplingParams(seed=4)),
        replace(context, sample_index=1),
        replace(context, output=(3, 4)),
    ]
    assert base not in [draw_one(logits, other).token for other in changed]
