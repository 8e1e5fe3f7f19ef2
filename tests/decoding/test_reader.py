from __future__ import annotations

import numpy as np
import pytest
import torch

from decoding.reader import ArrayReader, TensorReader, read_logits

LOGITS = torch.tensor([[0.5, 3.0, 3.0, -1.0, 9.0], [float("nan"), 1.0, 2.0, 0.0, 9.0], [1.0, -2.0, 0.0, 1.5, 9.0]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_half_precision_goes_through_torch_and_the_rest_in_place(dtype):
    reader = read_logits(LOGITS.to(dtype), 4)
    assert type(reader) is (ArrayReader if dtype in (torch.float32, torch.float64) else TensorReader)
    copies = list(reader.copies([2, 0]))
    assert [copy.dtype for copy in copies] == [np.float64 if dtype == torch.float64 else np.float32] * 2
    assert np.array_equal(copies, LOGITS[[2, 0], :4])


@pytest.mark.parametrize("rows", [[0, 1, 2], [2, 0], [1]])
def test_both_readers_answer_alike(rows):
    in_place, by_torch = ArrayReader(LOGITS.numpy()[:, :4]), TensorReader(LOGITS[:, :4])
    ids = [np.array([1, 3]), np.array([0]), np.array([0, 1, 2])][: len(rows)]
    assert str(in_place.best(rows)) == str(by_torch.best(rows))
    for left, right in zip(in_place.gather(rows, ids), by_torch.gather(rows, ids), strict=True):
        assert np.array_equal(left, right, equal_nan=True)
    for left, right in zip(in_place.copies(rows), by_torch.copies(rows), strict=True):
        assert np.array_equal(left, right, equal_nan=True)


@pytest.mark.parametrize("reader", [ArrayReader(LOGITS.numpy()), TensorReader(LOGITS)])
def test_answers_are_the_callers_own(reader):
    before = LOGITS.clone()
    for array in (*reader.copies([0, 1, 2]), *reader.gather([2], [np.array([0, 1])])):
        array[:] = 5.0
    assert torch.equal(LOGITS.nan_to_num(7.0), before.nan_to_num(7.0))


def test_best_is_the_lowest_id_among_equals_and_a_not_a_number_first():
    for reader in (ArrayReader(LOGITS.numpy()[:, :4]), TensorReader(LOGITS[:, :4])):
        assert reader.best([0]) == [(1, 3.0)]
        (token, value) = reader.best([1])[0]
        assert token == 0
        assert np.isnan(value)
