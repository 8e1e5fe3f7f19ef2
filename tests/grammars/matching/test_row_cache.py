"""The cache of rows: equal rows once, bounded, the least recently used first to go."""

from __future__ import annotations

import numpy as np

from grammars.matching.automaton import Configuration
from grammars.matching.row_cache import RowCache

ROW_BYTES = 2 * 8


def bits(number):
    return np.array([number, 1], dtype=np.uint32)


def test_equal_rows_are_one_object_and_counted_once():
    cache = RowCache(64)
    first = cache.put(Configuration(1, 1), bits(3), ())
    second = cache.put(Configuration(2, 1), bits(3), ())
    assert first.row is second.row
    assert cache.num_bytes == ROW_BYTES


def test_the_least_recently_used_goes_first_and_memory_is_bounded():
    cache = RowCache(64, max_bytes=3 * ROW_BYTES)
    for state in range(3):
        cache.put(Configuration(state, 1), bits(state), ())
    assert cache.get(Configuration(0, 1)) is not None
    cache.put(Configuration(3, 1), bits(3), ())
    assert cache.get(Configuration(1, 1)) is None
    assert cache.get(Configuration(0, 1)) is not None
    assert cache.num_bytes == 3 * ROW_BYTES


def test_a_row_stays_while_one_configuration_has_it():
    cache = RowCache(64, max_bytes=2 * ROW_BYTES)
    shared = cache.put(Configuration(1, 1), bits(7), ())
    cache.put(Configuration(2, 1), bits(7), ())
    cache.put(Configuration(3, 1), bits(8), ())
    cache.put(Configuration(4, 1), bits(9), ())
    assert cache.num_bytes <= 2 * ROW_BYTES
    again = cache.put(Configuration(5, 1), bits(7), ())
    assert np.array_equal(again.row.bits_W, shared.row.bits_W)


def test_one_row_is_always_kept():
    cache = RowCache(64, max_bytes=1)
    cache.put(Configuration(1, 1), bits(1), ())
    cache.put(Configuration(2, 1), bits(2), ())
    assert cache.get(Configuration(2, 1)) is not None
    assert cache.get(Configuration(1, 1)) is None
