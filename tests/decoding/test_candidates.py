from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoding.candidates import contenders, leaders
from decoding.keyed import gumbel, mix, strides, uniform

WIDTH = 20_000
STRIDES = strides(np.arange(WIDTH))


@given(key=st.integers(0, 2**64 - 1), spread=st.sampled_from([0.0, 0.1, 2.0, 30.0]), legal=st.floats(0.01, 1))
def test_contenders_are_few_and_the_winner_is_among_them(key, spread, legal):
    rng = np.random.default_rng(key)
    scaled = (rng.standard_normal(WIDTH) * spread).astype(np.float32)
    scaled[rng.random(WIDTH) > legal] = -np.inf
    scaled[0] = 0.0
    scaled -= scaled.max()
    scores = scaled + gumbel(uniform(mix(np.uint64(key), STRIDES)))
    found = contenders(scaled, key, STRIDES)
    assert int(scores.argmax()) in found
    assert len(found) < WIDTH // 20
    assert (np.diff(found) > 0).all()


@pytest.mark.parametrize(("count", "expected"), [(0, []), (1, [1]), (2, [1, 3, 4]), (9, [0, 1, 3, 4])])
def test_leaders_are_legal_and_keep_equals(count, expected):
    scaled = np.array([-2.0, 0.0, -np.inf, -1.0, -1.0])
    assert leaders(scaled, count).tolist() == expected
