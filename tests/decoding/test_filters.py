from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoding.filters import nth_largest, thresholds
from decoding.params import SamplingParams


def kept(scaled, **params):
    row = np.array([scaled])
    floors = thresholds(row, [SamplingParams(**params)], [None])
    return np.flatnonzero(row[0] >= floors[0]).tolist()


def test_top_p_keeps_the_smallest_set_that_reaches_it():
    half = [0.0, math.log(0.5), math.log(0.25), math.log(0.25)]  # shares 1/2, 1/4, 1/8, 1/8
    assert kept(half, top_p=0.49) == [0]
    assert kept(half, top_p=0.51) == [0, 1]
    assert kept(half, top_p=0.76) == [0, 1, 2, 3]  # the third and its equal
    share = 1 / (1 + math.exp(-1.0))
    assert share * (1 + math.exp(-1.0)) == 1.0
    assert kept([-1.0, 0.0], top_p=share) == [1]  # reached exactly


def test_equal_logits_live_or_die_together():
    assert kept([-1.0, 0.0, -1.0, -1.0], top_k=2) == [0, 1, 2, 3]
    assert kept([0.0, 0.0, 0.0, -1.0], top_p=0.1) == [0, 1, 2]


def test_min_p_is_a_share_of_the_most_likely():
    assert kept([0.0, math.log(0.11), math.log(0.09)], min_p=0.1) == [0, 1]
    assert kept([0.0, 0.0, -0.1], min_p=1.0) == [0, 1]


def test_top_p_is_a_share_of_what_top_k_leaves():
    scaled = [0.0, -0.1, -0.2, -0.3]
    assert kept(scaled, top_p=0.6) == [0, 1, 2]
    assert kept(scaled, top_k=2, top_p=0.6) == [0, 1]
    assert kept(scaled, top_k=2, top_p=0.4) == [0]


def test_masses_are_summed_in_float64():
    scaled = np.full((1, 60_001), -25 * math.log(2), dtype=np.float32)
    scaled[0, 0] = 0.0  # the 60,000 others hold 0.18 % together, each less than float32 can add to 1
    floors = thresholds(scaled, [SamplingParams(top_p=0.9995)], [None])
    assert (scaled >= floors).all()


@given(
    st.lists(st.floats(-50, 0) | st.sampled_from([-math.inf, -1.0]), min_size=1, max_size=300),
    st.integers(1, 400),
    st.integers(1, 3),
)
def test_nth_largest_equals_sorting(values, n, repeats):
    array = np.array(values * repeats, dtype=np.float32)
    finite = sorted((value for value in array.tolist() if value > -math.inf), reverse=True)
    least = float(np.finfo(np.float32).min)
    assert nth_largest(array, n) == (finite[n - 1] if n <= len(finite) else least)


@pytest.mark.parametrize("n", [1, 5, 64, 5000])
def test_nth_largest_of_a_masked_wide_row(n):
    array = np.random.default_rng(0).standard_normal(10_000)
    array[:7000] = -np.inf
    expected = np.sort(array)[-n] if n <= 3000 else np.finfo(np.float64).min
    assert nth_largest(array, n) == expected
