"""The stages that cut the tail off a distribution: top-k, top-p and min-p, in this order.

All three keep the tokens at or above a value of their own, so together they are one threshold per row, and equal
logits live or die together. Invariant: the most likely token survives, and the threshold depends on no other row:
padding a row with -inf changes nothing (sums run from the most likely token down).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from decoding.params import SamplingParams
from decoding.reader import Logits

# Nats by which `floor` stays below the exact threshold, far above float32's rounding of exp and log.
_MARGIN = 1e-3


def is_filtered(params: SamplingParams) -> bool:
    """Whether any of the stages is on."""
    return bool(params.top_k or params.top_p < 1 or params.min_p)


def thresholds(scaled_RC: Logits, params: Sequence[SamplingParams], masses: Sequence[float | None]) -> Logits:
    """Per row [R, 1] the least scaled logit that survives.

    Args:
        scaled_RC: scaled logits, at most 0, the row's largest being 0; -inf for no candidate.
        params: per row.
        masses: per row the sum of exp(scaled) over all that top-k leaves, where some of that was left out of
            ``scaled_RC`` because top-p cuts it anyway; None where nothing was.
    """
    width = scaled_RC.shape[1]
    descending_RC = np.sort(scaled_RC, axis=1)[:, ::-1]
    ranks_R = np.array([min(row.top_k or width, width) for row in params]) - 1
    kth_R1 = np.take_along_axis(descending_RC, ranks_R[:, None], axis=1)
    weights_RC = np.exp(descending_RC)
    weights_RC[descending_RC < kth_R1] = 0
    up_to_RC = np.cumsum(weights_RC, axis=1, dtype=np.float64)
    goals_R = [
        row.top_p * (total if mass is None else mass) if row.top_p < 1 else math.inf
        for row, mass, total in zip(params, masses, up_to_RC[:, -1].tolist(), strict=True)
    ]
    # The smallest set that reaches the goal ends with the last token that finds less than the goal above itself.
    reached_R = 1 + (up_to_RC[:, :-1] < np.array(goals_R)[:, None]).sum(axis=1)
    likely_R = (weights_RC >= np.array([row.min_p for row in params])[:, None]).sum(axis=1)
    last_R = np.minimum(reached_R, likely_R) - 1
    return np.maximum(kth_R1, np.take_along_axis(descending_RC, last_R[:, None], axis=1))


def floor(scaled_V: Logits, params: SamplingParams, mass: float | None) -> float:
    """A scaled logit, cheap to find, below which no token of a wide row survives the stages.

    Top-k: the k-th largest value; the others stay out of it, because top-p wants all that top-k leaves. Top-p: V tokens
    of weight under (1 - p) x mass / V weigh less than 1 - p together, so more than p lies above each of them.
    ``mass`` is the sum of exp(scaled_V), needed for top-p without top-k.
    """
    if params.top_k:
        return nth_largest(scaled_V, params.top_k)
    bounds = [_least(scaled_V)]
    if params.top_p < 1:
        assert mass is not None
        bounds.append(math.log((1 - params.top_p) * mass / len(scaled_V)) - _MARGIN)
    if params.min_p:
        bounds.append(math.log(params.min_p) - _MARGIN)
    return max(bounds)


def nth_largest(values_C: Logits, n: int) -> float:
    """The n-th largest value, or the least finite number where fewer than n are finite.

    The n-th largest of the maxima of disjoint groups is at most the n-th largest of all, and spares the selection what
    lies below it (-inf, above all: selection is slow on many equal values).
    """
    bound = _least(values_C)
    groups = len(values_C) // 64
    if n <= groups:
        maxima = values_C[: 64 * groups].reshape(64, groups).max(axis=0)
        bound = max(bound, float(np.partition(maxima, groups - n)[groups - n]))
    high = values_C[values_C >= bound]
    return float(np.partition(high, len(high) - n)[len(high) - n]) if len(high) >= n else bound


def _least(values_C: Logits) -> float:
    """The least finite number of the array's dtype."""
    return float(np.finfo(values_C.dtype).min)
