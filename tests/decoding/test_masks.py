from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoding.masks import SHORT_LIST, MaskRow, num_words, pack, pack_ids, unpack


@given(st.lists(st.booleans(), min_size=1, max_size=100))
def test_packing_is_undone_by_unpacking(flags):
    dense = np.array(flags)
    words = pack(dense)
    assert words.dtype == np.int32
    assert len(words) == num_words(len(flags))
    assert unpack(words, len(flags)).tolist() == flags
    assert (pack_ids(np.flatnonzero(dense).tolist(), len(flags)) == words).all()
    for token, legal in enumerate(flags):
        assert bool((int(words[token >> 5]) >> (token & 31)) & 1) == legal


@given(st.integers(1, 1000), st.integers(0, 2**32), st.sampled_from([0.0, 0.1, 0.5, 0.99, 1.0]))
def test_a_row_equals_its_set(vocab_size, seed, share):
    rng = np.random.default_rng(seed)
    legal = {int(rng.integers(vocab_size)), *np.flatnonzero(rng.random(vocab_size) < share).tolist()}
    row = MaskRow.from_ids(legal, vocab_size)
    forbidden = sorted(set(range(vocab_size)) - legal)
    assert [token for token in range(vocab_size) if token in row] == sorted(legal)
    assert row.num_legal == len(legal)
    assert (row.legal is None) == (len(legal) > SHORT_LIST)
    assert (row.forbidden is None) == (len(forbidden) > SHORT_LIST)
    assert row.legal is None or row.legal.tolist() == sorted(legal)
    assert row.forbidden is None or row.forbidden.tolist() == forbidden


def test_a_row_never_changes():
    row = MaskRow.from_ids([1, 5], 40)
    for array in (row.bits_W, row.legal, row.forbidden):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_a_row_is_never_empty():
    with pytest.raises(ValueError, match="at least one token"):
        MaskRow.from_ids([], 40)


def test_a_row_has_no_bits_past_the_vocabulary():
    MaskRow.from_bits(pack_ids([3, 34], 40), 35)
    with pytest.raises(ValueError, match="past the vocabulary"):
        MaskRow.from_bits(pack_ids([3, 35], 40), 35)


@pytest.mark.parametrize("token", [-1, 40])
def test_ids_outside_the_vocabulary_are_refused(token):
    with pytest.raises(ValueError, match=r"outside \[0, 40\)"):
        pack_ids([token], 40)
