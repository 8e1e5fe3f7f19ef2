"""The bank of rows: equal rows are one object with a number of its own, for as long as somebody keeps it."""

from __future__ import annotations

import random

import numpy as np
import pytest

from decoding.masks import MaskRow
from decoding.row_bank import RowBank

VOCAB_SIZE = 40


def frozen(bits, index):
    row = MaskRow.from_bits(bits.view(np.int32), VOCAB_SIZE)
    return MaskRow(bits_W=row.bits_W, num_legal=row.num_legal, legal=row.legal, forbidden=row.forbidden, index=index)


@pytest.fixture
def bank():
    return RowBank(frozen)


def bits(number):
    return np.array([number, 1], dtype=np.uint32)


def test_equal_rows_are_one_object(bank):
    rows = [bank.row(bits(number)) for number in (3, 4, 3)]
    assert rows[0] is rows[2]
    assert [row.index for row in rows] == [0, 1, 0]
    assert (bank.size, bank.num_rows) == (2, 2)


def test_the_numbers_of_rows_that_are_gone_are_used_again_the_lowest_first(bank):
    rows = {number: bank.row(bits(number)) for number in range(4)}
    del rows[2], rows[1]
    assert (bank.size, bank.num_rows) == (4, 2)
    assert [bank.row(bits(9)).index, bank.row(bits(10)).index] == [1, 1]
    kept = [bank.row(bits(11)), bank.row(bits(12)), bank.row(bits(13))]
    assert [row.index for row in kept] == [1, 2, 4]


def test_a_row_without_legal_tokens_takes_no_number(bank):
    with pytest.raises(ValueError, match="at least one token"):
        bank.row(np.zeros(2, dtype=np.uint32))
    assert bank.size == 0
    assert bank.row(bits(1)).index == 0


def test_rows_whose_hashes_collide_stay_apart(bank, monkeypatch):
    monkeypatch.setattr("decoding.row_bank.hash", lambda _: 7, raising=False)
    first, second = bank.row(bits(1)), bank.row(bits(2))
    assert first is not second
    assert bank.row(bits(2)) is second
    del second
    assert bank.num_rows == 1
    assert bank.row(bits(1)) is first


def test_whatever_comes_and_goes_numbers_are_distinct_and_find_their_rows(bank):
    draw = random.Random(5)
    kept = {}
    for _ in range(2000):
        number = draw.randrange(30)
        if draw.random() < 0.5:
            kept[number] = bank.row(bits(number))
        else:
            kept.pop(number, None)
        assert len({row.index for row in kept.values()}) == len(kept) == bank.num_rows
    assert all(row.bits_W[0] == number for number, row in kept.items())
    assert bank.size <= 30
