"""The most likely legal tokens of a row, against a loop over the vocabulary."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.masks import MaskRow
from drafters.trees.choosing import DraftVocabulary


@given(data=st.data(), width=st.integers(1, 12))
@settings(max_examples=100, deadline=None)
def test_most_likely_tokens_equal_a_loop_over_the_vocabulary(data, width):
    target_ids = data.draw(st.one_of(st.none(), st.permutations(range(20)).map(lambda ids: ids[:7])))
    ids = list(range(20)) if target_ids is None else target_ids
    rows = data.draw(
        st.lists(st.lists(st.floats(-30, 30), min_size=len(ids), max_size=len(ids)), min_size=1, max_size=3)
    )
    masks = [
        data.draw(
            st.one_of(st.none(), st.sets(st.integers(0, 19), min_size=1).map(lambda ids: MaskRow.from_ids(ids, 20)))
        )
        for _ in rows
    ]
    vocabulary = DraftVocabulary(20, None if target_ids is None else torch.tensor(target_ids))
    logits = torch.tensor(rows, dtype=torch.float64)
    for row, mask, guesses in zip(rows, masks, vocabulary.most_likely(logits, masks, [width] * len(rows)), strict=True):
        legal = {t: logit for t, logit in zip(ids, row, strict=True) if mask is None or t in mask}
        assert len(guesses) == min(width, len(legal))
        total = np.logaddexp.reduce(list(legal.values())) if legal else 0.0
        assert [guess.logprob for guess in guesses] == pytest.approx(
            sorted((min(x - total, 0.0) for x in legal.values()), reverse=True)[:width], abs=1e-9
        )
        for guess in guesses:
            assert min(legal[guess.token] - total, 0.0) == pytest.approx(guess.logprob, abs=1e-9)


def test_rows_that_are_not_finite_give_no_guess():
    logits = torch.tensor([[1.0, float("nan"), 2.0], [1.0, 2.0, 3.0]])
    nothing, something = DraftVocabulary(3, None).most_likely(logits, [None, None], [2, 1])
    assert nothing == []
    assert [guess.token for guess in something] == [2]
