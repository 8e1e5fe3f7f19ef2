"""Drawn frequencies against exact probabilities. Seeds are fixed, so a test that passes once always does."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
import torch

from decoding.masks import MaskRow
from decoding.params import SamplingParams
from decoding.pipeline import LogitsPipeline
from decoding.rows import RowContext

LIMIT = 3.5  # standard scores; beyond it a right sampler lands once in 4,000 tests


def draws(logits, count, mask=None, first_seed=0, sample=0, output=(), **params):
    """Tokens of ``count`` seeds at one position."""
    pipeline = LogitsPipeline(len(logits), ())
    rows = [
        RowContext(
            params=SamplingParams(seed=seed, **params), sample_index=sample, prompt=(0,), output=output, mask=mask
        )
        for seed in range(first_seed, first_seed + count)
    ]
    logits_RV = torch.tensor(logits, dtype=torch.float32).expand(count, -1)
    return [draw.token for draw in pipeline.draw(logits_RV, rows)]


def frequencies(tokens, kept):
    counts = Counter(tokens)
    assert set(counts) <= set(kept)
    return [counts[token] for token in kept]


LOGITS = [0.3, -1.2, 2.0, 1.1, -0.4, 0.0, 1.6, -2.0]


@pytest.mark.parametrize(
    ("params", "kept"),
    [
        ({}, [0, 1, 2, 3, 4, 5, 6, 7]),
        ({"temperature": 1.5}, [0, 1, 2, 3, 4, 5, 6, 7]),
        ({"top_k": 3}, [2, 3, 6]),
        ({"top_p": 0.7}, [2, 3, 6]),
        ({"min_p": 0.15}, [0, 2, 3, 6]),
        ({"mask": MaskRow.from_ids([0, 3, 7], 8)}, [0, 3, 7]),
    ],
)
def test_a_row_follows_its_distribution(chi_square, params, kept):
    weights = np.exp(np.array(LOGITS)[kept] / params.get("temperature", 1.0))
    tokens = draws(LOGITS, 20_000, **params)
    observed = frequencies(tokens, kept)
    assert chi_square(observed, weights / weights.sum() * 20_000) < LIMIT
    wrong = weights**1.1
    assert chi_square(observed, wrong / wrong.sum() * 20_000) > LIMIT


@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_a_wide_row_follows_its_distribution(chi_square, spread):
    """Past the short lists the draw is a race of which few tokens are computed; counted in 20 equal groups of ids."""
    logits = np.random.default_rng(0).standard_normal(2000) * spread
    groups = np.exp(logits).reshape(20, 100).sum(axis=1)
    tokens = np.array(draws(logits.tolist(), 8000))
    assert chi_square(np.bincount(tokens // 100, minlength=20), groups / groups.sum() * 8000) < LIMIT


def test_whole_sequences_follow_the_chain_rule(chi_square):
    """A Markov chain of three tokens with a mask that forbids one transition; all sequences of four tokens."""
    transition = np.array([[0.2, 1.0, -0.5], [0.7, -1.0, 0.3], [0.0, 0.4, 1.2]])
    masks = {0: None, 1: MaskRow.from_ids([0, 2], 3), 2: None}
    samples, length = 15_000, 4
    pipeline, params = LogitsPipeline(3, ()), SamplingParams(seed=11, temperature=0.9)
    texts = [[0] for _ in range(samples)]
    for _ in range(length):
        rows = [
            RowContext(params=params, sample_index=index, prompt=text[:1], output=text[1:], mask=masks[text[-1]])
            for index, text in enumerate(texts)
        ]
        logits_RV = torch.from_numpy(transition[[text[-1] for text in texts]])
        for text, draw in zip(texts, pipeline.draw(logits_RV, rows), strict=True):
            text.append(draw.token)
    scaled = np.exp(transition / 0.9)
    scaled[1, 1] = 0
    steps = scaled / scaled.sum(axis=1, keepdims=True)
    exact = {
        text: np.prod([steps[a, b] for a, b in itertools.pairwise((0, *text))])
        for text in itertools.product(range(3), repeat=length)
    }
    possible = [text for text, p in exact.items() if p > 0]
    observed = frequencies([tuple(text[1:]) for text in texts], possible)
    assert chi_square(observed, [exact[text] * samples for text in possible]) < LIMIT


@pytest.mark.parametrize(
    "other",
    [{"output": (0,)}, {"sample": 1}, {"first_seed": 1}, {"first_seed": 1 << 40}],
    ids=["next position", "next sample", "next seed", "far seed"],
)
def test_draws_of_different_keys_are_independent(chi_square, other):
    """Contingency table of two draws from one uniform distribution over four tokens."""
    logits = [0.0] * 4
    pairs = Counter(zip(draws(logits, 16_000), draws(logits, 16_000, **other), strict=True))
    assert chi_square([pairs[pair] for pair in itertools.product(range(4), repeat=2)], [1000.0] * 16) < LIMIT
