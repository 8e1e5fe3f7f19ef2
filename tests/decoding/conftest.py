"""The slow obvious twin of the logits pipeline, and the statistics that hold draws to a distribution."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from decoding.rows import Draw, RowContext, TokenLogprobs

MASK_64 = (1 << 64) - 1


def noise(seed: int, sample_index: int, position: int, token: int) -> float:
    """A token's Gumbel noise in plain integers: BLAKE2b key, SplitMix64 output, 52-bit uniform, double logarithm."""
    packed = b"".join(number.to_bytes(8, "little") for number in (seed, sample_index, position))
    key = int.from_bytes(hashlib.blake2b(packed, digest_size=8).digest(), "little")
    z = (key + (token + 1) * 0x9E3779B97F4A7C15) & MASK_64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK_64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK_64
    z ^= z >> 31
    return -math.log(-math.log(((z >> 12) + 0.5) / 2**52))


def reference_draw(logits_V: np.ndarray, row: RowContext, vocab_size: int, eos_token_ids: tuple[int, ...]) -> Draw:
    """Every stage on every token of one dense row, one after the other, in the precision of the row."""
    params = row.params
    x = logits_V[:vocab_size].copy()
    move(x, row)
    forbid(x, row, eos_token_ids)
    top = x.max()
    if not math.isfinite(top):
        return Draw(token=None, error=None if top == -math.inf else "not finite")
    if params.temperature == 0:
        scaled = x - top
        token = next(token for token in range(vocab_size) if x[token] == top)
    else:
        with np.errstate(over="ignore"):
            scaled = (x - top) / max(x.dtype.type(params.temperature), np.finfo(x.dtype).tiny)
        cut(scaled, row)
        position = len(row.prompt) + len(row.output)
        keys = (params.seed, row.sample_index, position)
        scores = {t: float(s) + noise(*keys, t) for t, s in enumerate(scaled) if s > -math.inf}
        token = max(scores, key=lambda t: scores[t])
    if params.logprobs is None:
        return Draw(token=token)
    log_mass = math.log(math.fsum(np.exp(scaled)))
    ranking = sorted((t for t in range(vocab_size) if scaled[t] > -math.inf), key=lambda t: (-scaled[t], t))
    top_list = tuple((t, float(scaled[t]) - log_mass) for t in ranking[: params.logprobs])
    return Draw(token=token, logprobs=TokenLogprobs(token=float(scaled[token]) - log_mass, top=top_list))


@np.errstate(over="ignore")
def move(x: np.ndarray, row: RowContext) -> None:
    params = row.params
    for token, bias in params.logit_bias.items():
        x[token] += x.dtype.type(bias)
    for token in {*row.prompt, *row.output}:
        penalty = x.dtype.type(params.repetition_penalty)
        x[token] = x[token] * penalty if x[token] < 0 else x[token] / penalty
    for token, count in Counter(row.output).items():
        frequency = x.dtype.type(params.frequency_penalty) * x.dtype.type(count)
        x[token] -= x.dtype.type(params.presence_penalty) + frequency


def forbid(x: np.ndarray, row: RowContext, eos_token_ids: tuple[int, ...]) -> None:
    params = row.params
    path = (*row.prompt, *row.output)
    for word in params.bad_words:
        ends_path = len(path) >= len(word) - 1 and path[len(path) - (len(word) - 1) :] == word[:-1]
        if ends_path and word not in {(token,) for token in eos_token_ids}:
            x[word[-1]] = -np.inf
    if params.ignore_eos or len(row.output) < params.min_tokens:
        x[list(eos_token_ids)] = -np.inf
    if row.mask is not None:
        for token in range(len(x)):
            if token not in row.mask:
                x[token] = -np.inf


def cut(scaled: np.ndarray, row: RowContext) -> None:
    params = row.params
    if params.top_k:
        kth = sorted(scaled, reverse=True)[min(params.top_k, len(scaled)) - 1]
        scaled[scaled < kth] = -np.inf
    if params.top_p < 1:
        weights = np.exp(scaled)
        mass = math.fsum(weights)
        heavier = 0.0
        for value in np.unique(scaled)[::-1]:
            equals = scaled == value
            if heavier >= params.top_p * mass:
                scaled[equals] = -np.inf
            heavier += math.fsum(weights[equals])
    scaled[np.exp(scaled) < params.min_p] = -np.inf


@pytest.fixture(scope="session")
def token_noise() -> Callable[[int, int, int, int], float]:
    return noise


@pytest.fixture(scope="session")
def twin() -> Callable[..., Draw]:
    return reference_draw


@pytest.fixture(scope="session")
def chi_square() -> Callable[[Sequence[float], Sequence[float]], float]:
    """Standard score of Pearson's statistic (Wilson and Hilferty 1931): normal where the expectation is right."""

    def score(observed: Sequence[float], expected: Sequence[float]) -> float:
        assert min(expected) > 5, "too few draws for the normal approximation"
        statistic = sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
        freedom = len(expected) - 1
        spread = 2 / (9 * freedom)
        return ((statistic / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)

    return score
