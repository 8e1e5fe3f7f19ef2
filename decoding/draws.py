"""The last stages on candidates: filters, the draw, log-probabilities.

Rows are drawn together as one padded matrix. Invariant: a row's outcome is the same, bit for bit, alone and in any
company.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from decoding.candidates import Candidates, Floats, Ids, leaders, total_mass
from decoding.filters import is_filtered, thresholds
from decoding.keyed import gumbel, mix, strides, uniform
from decoding.params import SamplingParams
from decoding.rows import Draw, TokenLogprobs

Number = TypeVar("Number", np.int64, np.floating)


def draw_best(candidates: Candidates, params: SamplingParams) -> Draw:
    """The most likely candidate, the lowest id among equals. Filters always keep it, so they do not enter."""
    chosen = int(candidates.scaled_C.argmax())
    return _draw(candidates.ids_C, candidates.scaled_C, chosen, params, candidates.mass)


def draw_keyed(batch: Sequence[Candidates], params: Sequence[SamplingParams], keys: Sequence[int]) -> list[Draw]:
    """One draw per row from the softmax of its scaled logits, cut by its filters, with the noise of its key."""
    ids_RC = _stack([candidates.ids_C for candidates in batch], padding=0)
    scaled_RC = _stack([candidates.scaled_C for candidates in batch], padding=-np.inf)
    masses = [candidates.mass for candidates in batch]
    cut = [is_filtered(row) for row in params]
    if any(cut):
        scaled_RC = np.where(scaled_RC < thresholds(scaled_RC, params, masses), -np.inf, scaled_RC)
    keys_R1 = np.array(keys, dtype=np.uint64)[:, None]
    scores_RC = gumbel(uniform(mix(keys_R1, strides(ids_RC))))
    scores_RC += scaled_RC
    chosen_R = scores_RC.argmax(axis=1).tolist()
    whole = [None if filtered else mass for filtered, mass in zip(cut, masses, strict=True)]
    return [_draw(*row) for row in zip(ids_RC, scaled_RC, chosen_R, params, whole, strict=True)]


def _stack(rows: Sequence[npt.NDArray[Number]], padding: float) -> npt.NDArray[Number]:
    """The rows as one matrix, padded to the longest; a row by itself is not copied."""
    if len(rows) == 1:
        return rows[0][None]
    stacked = np.full((len(rows), max(len(row) for row in rows)), padding, dtype=rows[0].dtype)
    for index, row in enumerate(rows):
        stacked[index, : len(row)] = row
    return stacked


def _draw(ids_C: Ids, scaled_C: Floats, chosen: int, params: SamplingParams, mass: float | None) -> Draw:
    """The draw of index ``chosen`` from what is finite in ``scaled_C``, which is all of the mass where that is None."""
    token = int(ids_C[chosen])
    if params.logprobs is None:
        return Draw(token=token)
    log_mass = math.log(total_mass(scaled_C[scaled_C > -np.inf]) if mass is None else mass)
    top: tuple[tuple[int, float], ...] = ()
    if params.logprobs:
        best = leaders(scaled_C, params.logprobs)
        best = best[np.argsort(-scaled_C[best], kind="stable")][: params.logprobs]
        top = tuple((int(ids_C[index]), float(scaled_C[index]) - log_mass) for index in best)
    return Draw(token=token, logprobs=TokenLogprobs(token=float(scaled_C[chosen]) - log_mass, top=top))
