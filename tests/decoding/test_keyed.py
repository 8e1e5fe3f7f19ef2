from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoding.keyed import clock, gumbel, mix, row_key, strides, uniform

U64 = st.integers(0, 2**64 - 1)


def test_splitmix64_known_answers():
    # First outputs of the reference implementation (Vigna, splitmix64.c) seeded with 1234567.
    known = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821]
    assert mix(np.uint64(1234567), strides(np.arange(5))).tolist() == known


@given(seed=U64, sample=U64, position=U64, tokens=st.lists(st.integers(0, 2**31), min_size=1, max_size=20))
def test_noise_equals_plain_integers(token_noise, seed, sample, position, tokens):
    key = np.uint64(row_key(seed, sample, position))
    fast = gumbel(uniform(mix(key, strides(np.array(tokens)))))
    slow = [token_noise(seed, sample, position, token) for token in tokens]
    assert fast.tolist() == pytest.approx(slow, rel=1e-14, abs=1e-14)


def test_keys_differ_in_every_part():
    keys = {row_key(seed, sample, position) for seed in range(10) for sample in range(10) for position in range(10)}
    assert len(keys) == 1000


def test_bits_do_not_depend_on_the_other_tokens():
    tokens = np.arange(1000)
    keys_R1 = np.array([3, 2**64 - 1], dtype=np.uint64)[:, None]
    together = mix(keys_R1, strides(np.stack([tokens, tokens])))
    for row, key in enumerate(keys_R1[:, 0]):
        assert (together[row, ::7] == mix(key, strides(tokens[::7]))).all()


@given(st.lists(U64, min_size=1, max_size=40))
def test_uniform_stays_inside_the_open_interval(bits):
    extremes = np.array([0, 2**64 - 1, *bits], dtype=np.uint64)
    values = uniform(extremes)
    assert values.min() == 2.0**-53
    assert values.max() == 1 - 2.0**-53
    assert np.isfinite(gumbel(values)).all()
    assert (clock(values) >= 1 - values).all()


def test_noise_is_gumbel_distributed(chi_square):
    noise = gumbel(uniform(mix(np.uint64(row_key(1, 2, 3)), strides(np.arange(100_000)))))
    edges = [-math.log(-math.log(share)) for share in np.arange(0.02, 1, 0.02)]
    observed, _ = np.histogram(noise, bins=[-np.inf, *edges, np.inf])
    assert chi_square(observed, [2000.0] * 50) < 3.5
    assert chi_square(np.histogram(noise * 1.03, bins=[-np.inf, *edges, np.inf])[0], [2000.0] * 50) > 3.5
