"""The stages that move logits: bias, repetition, presence and frequency penalties, in this order.

Invariant: only the logits of tokens that the request's bias, prompt or output name are touched, in place, on a row that
the caller owns; the work grows with the history, not with the vocabulary.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt

from decoding.params import SamplingParams
from decoding.rows import RowContext


def moves_logits(params: SamplingParams) -> bool:
    """Whether any of the stages is on."""
    return bool(
        params.logit_bias or params.repetition_penalty != 1 or params.presence_penalty or params.frequency_penalty
    )


def move_logits(logits_V: npt.NDArray[np.floating], row: RowContext) -> None:
    """Apply the stages that are on to the row, in its own precision."""
    params = row.params
    if params.logit_bias:
        _add_bias(logits_V, params)
    if params.repetition_penalty != 1:
        _penalise_repetition(logits_V, row)
    if params.presence_penalty or params.frequency_penalty:
        _penalise_output(logits_V, row)


def _add_bias(logits_V: npt.NDArray[np.floating], params: SamplingParams) -> None:
    ids = np.fromiter(params.logit_bias.keys(), np.int64)
    logits_V[ids] += np.fromiter(params.logit_bias.values(), logits_V.dtype)


def _penalise_repetition(logits_V: npt.NDArray[np.floating], row: RowContext) -> None:
    """Divide positive and multiply other logits of tokens of prompt or output, once (Keskar et al. 2019)."""
    ids = np.fromiter({*row.prompt, *row.output}, np.int64)
    seen = logits_V[ids]
    penalty = row.params.repetition_penalty
    logits_V[ids] = np.where(seen < 0, seen * penalty, seen / penalty)


def _penalise_output(logits_V: npt.NDArray[np.floating], row: RowContext) -> None:
    """Subtract presence + frequency x count from logits of tokens of the output (as in OpenAI's interface)."""
    counts = Counter(row.output)
    ids = np.fromiter(counts.keys(), np.int64)
    times = np.fromiter(counts.values(), logits_V.dtype)
    logits_V[ids] -= row.params.presence_penalty + row.params.frequency_penalty * times
