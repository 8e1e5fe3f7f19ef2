"""From rows of logits to tokens, through every sampling stage in its documented order.

    bias → repetition, presence, frequency penalties → bad words, min_tokens, ignore_eos → mask, padded tail   legal.py
         → temperature → top-k → top-p → min-p → draw → log-probabilities                 candidates.py, draws.py

Invariant: no forbidden token is ever drawn, and the way that a row takes never shows in its outcome.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from decoding.candidates import Candidates, narrow, scale
from decoding.chances import Chances, chances
from decoding.draws import draw_each
from decoding.keyed import row_key, strides
from decoding.legal import LegalLogits
from decoding.reader import Ids, Logits, read_logits
from decoding.rows import Draw, RowContext

_NOT_FINITE = "the model's logits are not finite at a legal token; check its weights, dtype and quantisation"


class LogitsPipeline:
    """Draws one token per row.

    Args:
        vocab_size: the tokenizer's true size; ids from there to the logits' padded width are never drawn.
        eos_token_ids: what min_tokens and ignore_eos forbid.
    """

    def __init__(self, vocab_size: int, eos_token_ids: tuple[int, ...]) -> None:
        self.vocab_size = vocab_size
        self.eos_token_ids = eos_token_ids
        self._ids_V = np.arange(vocab_size, dtype=np.int64)
        self._strides_V = strides(self._ids_V)

    def draw(self, logits_RV: torch.Tensor, rows: Sequence[RowContext]) -> list[Draw]:
        """One draw per row of ``logits_RV`` (floating, any device, V >= vocab_size, never written).

        A row without a legal token has no token; a row whose logits are not finite has no token and an error.
        """
        legal = self._legal(logits_RV, rows)
        draws = {index: Draw(token=token) for index, token in legal.best().items()}
        contested: dict[int, Candidates] = {}
        with np.errstate(over="ignore"):  # what overflows becomes -inf, rightly: its probability is 0
            for index, ids_C, logits_C in legal.each(skip=draws):
                row = self._candidates(rows[index], ids_C, logits_C)
                if isinstance(row, Draw):
                    draws[index] = row
                else:
                    contested[index] = row if ids_C is not None else narrow(row)
            draws.update(draw_each(contested))
        return [draws[index] for index in range(len(rows))]

    def chances(self, logits_RV: torch.Tensor, rows: Sequence[RowContext]) -> list[Chances]:
        """What `draw` draws from, row by row, for a verifier that needs the probabilities themselves."""
        with np.errstate(over="ignore"):
            found = {
                index: chances(row) if isinstance(row, Candidates) else Chances(nothing=row)
                for index, ids_C, logits_C in self._legal(logits_RV, rows).each(skip=())
                for row in (self._candidates(rows[index], ids_C, logits_C),)
            }
        return [found[index] for index in range(len(rows))]

    def _legal(self, logits_RV: torch.Tensor, rows: Sequence[RowContext]) -> LegalLogits:
        assert logits_RV.ndim == 2
        assert len(logits_RV) == len(rows)
        assert logits_RV.shape[1] >= self.vocab_size
        return LegalLogits(read_logits(logits_RV, self.vocab_size), rows, self.eos_token_ids)

    def _candidates(self, row: RowContext, ids_C: Ids | None, logits_C: Logits) -> Candidates | Draw:
        largest = float(logits_C.max())
        if not math.isfinite(largest):
            return Draw(token=None, error=None if largest == -math.inf else _NOT_FINITE)
        return Candidates(
            params=row.params,
            key=row_key(row.params.seed, row.sample_index, len(row.prompt) + len(row.output)),
            ids_C=self._ids_V if ids_C is None else ids_C,
            strides_C=self._strides_V if ids_C is None else self._strides_V[ids_C],
            scaled_C=scale(logits_C, largest, row.params.temperature),
        )
