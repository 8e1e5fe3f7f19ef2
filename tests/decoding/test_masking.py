from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from decoding.masking import mask_logits, mask_row
from decoding.masks import MaskRow

SPECIAL = [-np.inf, np.nan, -0.0, 1e38]


@st.composite
def masked_rows(draw):
    vocab_size = draw(st.sampled_from([1, 31, 32, 33, 300, 1000]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    logits = rng.standard_normal(vocab_size).astype(draw(st.sampled_from([np.float32, np.float64])))
    logits[: len(SPECIAL)] = SPECIAL[:vocab_size]
    legal = rng.random(vocab_size) < draw(st.sampled_from([0.0, 0.05, 0.5, 0.99, 1.0]))
    legal[draw(st.integers(0, vocab_size - 1))] = True
    return logits, legal


def bits(array):
    return array.view(np.uint32 if array.dtype == np.float32 else np.uint64)


@given(masked_rows())
def test_a_row_keeps_legal_logits_bit_for_bit_and_forbids_the_rest(case):
    logits, legal = case
    masked = logits.copy()
    mask_row(masked, MaskRow.from_ids(np.flatnonzero(legal).tolist(), len(legal)))
    assert (masked[~legal] == -np.inf).all()
    number = legal & ~np.isnan(logits)
    assert (bits(masked)[number] == bits(logits)[number]).all()
    assert not np.isfinite(masked[legal & np.isnan(logits)]).any()
    assert not (masked[legal & np.isnan(logits)] == -np.inf).any()


@given(masked_rows(), st.integers(0, 70))
def test_tensor_rows_equal_host_rows_and_forbid_the_padded_tail(case, padding):
    logits, legal = case
    width = len(legal)
    padded = np.concatenate([logits, np.full(padding, 5.0, logits.dtype)])
    mask = MaskRow.from_ids(np.flatnonzero(legal).tolist(), width)
    tensor = torch.from_numpy(np.stack([padded, padded]))
    masked = mask_logits(tensor, [mask, None], width).numpy()
    assert (bits(masked)[0, :width] == bits(np.where(legal, logits, -np.inf).astype(logits.dtype))).all()
    assert (bits(masked)[1, :width] == bits(logits)).all()
    assert (masked[:, width:] == -np.inf).all()
    assert (bits(tensor.numpy())[0] == bits(padded)).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_tensor_rows_of_half_precision(dtype):
    masked = mask_logits(torch.ones(1, 40, dtype=dtype), [MaskRow.from_ids([0, 33], 34)], 34)
    assert masked.dtype == dtype
    assert masked[0].isfinite().nonzero().flatten().tolist() == [0, 33]
