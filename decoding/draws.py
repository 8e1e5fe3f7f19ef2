"""The last stages on candidates: filters, the draw, log-probabilities.

Rows are drawn together as one padded matrix. Invariant: a row's outcome is the same, bit for bit, alone and in any
company.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from decoding.candidates import Candidates, leaders, total_mass
from decoding.filters import is_filtered, thresholds
from decoding.keyed import gumbel, mix, uniform
from decoding.masks import SHORT_LIST
from decoding.reader import Logits
from decoding.rows import Draw, TokenLogprobs

Number = TypeVar("Number", bound=np.generic)


def draw_each(rows: Mapping[int, Candidates]) -> Iterator[tuple[int, Draw]]:
    """The draw of every row, by its index.

    Sampled rows with few candidates are drawn together; each wide one by itself, so that it pads no other.
    """
    batch: list[int] = []
    for index, row in rows.items():
        if not row.params.temperature:
            yield index, draw_best(row)
        elif len(row.ids_C) <= SHORT_LIST:
            batch.append(index)
        else:
            yield index, draw_keyed([row])[0]
    if batch:
        yield from zip(batch, draw_keyed([rows[index] for index in batch]), strict=True)


def draw_best(row: Candidates) -> Draw:
    """The most likely candidate, the lowest id among equals. Filters always keep it, so they do not enter."""
    return outcome(row, row.scaled_C, int(row.scaled_C.argmax()), row.mass)


def draw_keyed(batch: Sequence[Candidates]) -> list[Draw]:
    """One draw per row from the softmax of its scaled logits, cut by its filters, with the noise of its key."""
    strides_RC = _stack([row.strides_C for row in batch], padding=0)
    scaled_RC = _stack([row.scaled_C for row in batch], padding=-np.inf)
    cut = [is_filtered(row.params) for row in batch]
    if any(cut):
        floors_R1 = thresholds(scaled_RC, [row.params for row in batch], [row.mass for row in batch])
        scaled_RC = np.where(scaled_RC < floors_R1, -np.inf, scaled_RC)
    keys_R1 = np.array([row.key for row in batch], dtype=np.uint64)[:, None]
    scores_RC = gumbel(uniform(mix(keys_R1, strides_RC)))
    scores_RC += scaled_RC
    masses = [None if filtered else row.mass for row, filtered in zip(batch, cut, strict=True)]
    chosen_R = scores_RC.argmax(axis=1).tolist()
    return [outcome(*drawn) for drawn in zip(batch, scaled_RC, chosen_R, masses, strict=True)]


def _stack(rows: Sequence[npt.NDArray[Number]], padding: float) -> npt.NDArray[Number]:
    """The rows as one matrix, padded to the longest; a row by itself is not copied."""
    if len(rows) == 1:
        return rows[0][None]
    stacked = np.full((len(rows), max(len(row) for row in rows)), padding, dtype=rows[0].dtype)
    for index, row in enumerate(rows):
        stacked[index, : len(row)] = row
    return stacked


def outcome(row: Candidates, scaled_C: Logits, chosen: int, mass: float | None) -> Draw:
    """The draw of candidate ``chosen`` among those left finite in ``scaled_C``; they are all the mass where it is None.

    ``scaled_C`` may be padded with -inf past the row's candidates.
    """
    token = int(row.ids_C[chosen])
    wanted = row.params.logprobs
    if wanted is None:
        return Draw(token=token)
    log_mass = math.log(total_mass(scaled_C[scaled_C > -np.inf]) if mass is None else mass)
    best = leaders(scaled_C, wanted)
    best = best[np.argsort(-scaled_C[best], kind="stable")][:wanted]
    top = tuple((int(row.ids_C[index]), float(scaled_C[index]) - log_mass) for index in best)
    return Draw(token=token, logprobs=TokenLogprobs(token=float(scaled_C[chosen]) - log_mass, top=top))
