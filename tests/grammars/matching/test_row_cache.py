"""The cache of rows: equal rows once, bounded, the least recently used first to go."""

from __future__ import annotations

import numpy as np
import pytest

from decoding.row_bank import RowBank
from grammars.matching.automaton import Configuration
from grammars.matching.row_cache import RowCache
from grammars.matching.rows import freeze

ROW_BYTES = 8


def bits(number):
    return np.array([number, 1], dtype=np.uint32)


@pytest.fixture
def bank():
    return RowBank(lambda bits, index: freeze(bits, 64, index))


def test_equal_rows_are_one_object_and_counted_once(bank):
    cache = RowCache(bank)
    first = cache.put(Configuration(1, 1), bits(3), ())
    second = cache.put(Configuration(2, 1), bits(3), ())
    assert first.row is second.row
    assert cache.num_bytes == ROW_BYTES


def test_the_least_recently_used_go_first_and_memory_is_bounded(bank):
    cache = RowCache(bank, max_bytes=4 * ROW_BYTES)
    for state in range(4):
        cache.put(Configuration(state, 1), bits(state), ())
    assert cache.get(Configuration(0, 1)) is not None
    assert cache.num_drops == 0
    cache.put(Configuration(4, 1), bits(4), ())
    assert cache.num_drops == 1
    assert [cache.get(Configuration(state, 1)) is not None for state in range(5)] == [True, False, False, True, True]
    assert cache.num_bytes == 3 * ROW_BYTES
    assert bank.num_rows == 3


def test_a_row_stays_while_one_configuration_has_it(bank):
    cache = RowCache(bank, max_bytes=2 * ROW_BYTES)
    shared = cache.put(Configuration(1, 1), bits(7), ())
    cache.put(Configuration(2, 1), bits(7), ())
    cache.put(Configuration(3, 1), bits(8), ())
    cache.put(Configuration(4, 1), bits(9), ())
    assert cache.num_bytes <= 2 * ROW_BYTES
    again = cache.put(Configuration(5, 1), bits(7), ())
    assert again.row is shared.row


def test_one_row_is_always_kept(bank):
    cache = RowCache(bank, max_bytes=1)
    cache.put(Configuration(1, 1), bits(1), ())
    cache.put(Configuration(2, 1), bits(2), ())
    assert cache.get(Configuration(2, 1)) is not None
    assert cache.get(Configuration(1, 1)) is None
