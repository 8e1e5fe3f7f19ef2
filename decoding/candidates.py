"""The tokens of one row that can still be drawn, and how a wide row is narrowed to them.

Invariant: narrowing never changes a draw or a log-probability: it only leaves out tokens that the filters would cut or
that cannot win the draw, and remembers the mass of all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from decoding.filters import floor, is_filtered, nth_largest
from decoding.keyed import Bits, clock, mix, uniform
from decoding.params import SamplingParams
from decoding.reader import Ids, Logits

_CROWD = 512  # contenders beyond which a tighter bound is sought before their exact times are computed
_ROUNDING = 1 + 1e-5  # covers float32's rounding of weights


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidates:
    """Tokens of one row with their scaled logits, and what the rest of the way depends on.

    Attributes:
        params: the row's sampling parameters.
        key: of the row's noise.
        ids_C: ascending token ids.
        strides_C: their `keyed.strides`.
        scaled_C: (logit - largest legal logit of the row) / temperature, so that the largest is 0; -inf for a
            forbidden token.
        mass: sum of exp(scaled) over the whole row, where tokens were left out and it is needed, else None.
    """

    params: SamplingParams
    key: int
    ids_C: Ids
    strides_C: Bits
    scaled_C: Logits
    mass: float | None = None


def scale(logits_C: Logits, largest: float, temperature: float) -> Logits:
    """(logits - largest) / temperature, at most 0; temperature 0 stands for the undivided distribution.

    A temperature that the dtype cannot hold counts as its least normal number, so that 0 / 0 never arises. What scales
    beyond the dtype's range is -inf: its probability is 0.
    """
    shifted_C = logits_C - largest
    if temperature in (0, 1):
        return shifted_C
    return shifted_C / max(temperature, float(np.finfo(shifted_C.dtype).tiny))


def narrow(row: Candidates) -> Candidates:
    """The same row, given with all ids in order, with few candidates."""
    params, scaled_V = row.params, row.scaled_C
    mass = None
    if params.temperature and is_filtered(params):
        if params.top_p < 1 and not params.top_k:
            mass = total_mass(scaled_V)
        ids = np.flatnonzero(scaled_V >= floor(scaled_V, params, mass))
    else:
        best = np.array([scaled_V.argmax()])
        ids = contenders(scaled_V, row.key, row.strides_C) if params.temperature else best
        if params.logprobs is not None:
            mass = total_mass(scaled_V)
            ids = np.union1d(ids, leaders(scaled_V, params.logprobs))
    return replace(row, ids_C=row.ids_C[ids], strides_C=row.strides_C[ids], scaled_C=scaled_V[ids], mass=mass)


def total_mass(scaled_C: Logits) -> float:
    """Sum of exp(scaled), the most likely token weighing 1."""
    return float(np.exp(scaled_C).sum(dtype=np.float64))


def leaders(scaled_C: Logits, count: int) -> Ids:
    """Indices of the ``count`` most likely legal tokens, and of all that equal the last of them; none for 0."""
    if count == 0:
        return np.empty(0, dtype=np.int64)
    return np.flatnonzero(scaled_C >= nth_largest(scaled_C, count))


def contenders(scaled_V: Logits, key: int, strides_V: Bits) -> Ids:
    """Ids that can win the draw, the winner among them; usually a handful.

    The argmax of scaled + Gumbel noise is the argmin of E / weight, with E = -log(u) and weight = exp(scaled): a race
    of exponential clocks. The most likely token has weight 1 and time E; a token beats it only if its own E is at most
    that time x its weight, and E >= 1 - u spares the logarithms of all others.
    """
    weights_V = np.exp(scaled_V)
    bits_V = mix(np.uint64(key), strides_V)
    leader = int(scaled_V.argmax())
    time = float(clock(uniform(bits_V[leader : leader + 1]))[0])
    # 24 high bits of u, rounded so that `early_V` stays below 1 - u.
    early_V = (2.0**24 - 1 - (bits_V >> 40).view(np.int64).astype(np.float32)) * np.float32(2.0**-24)
    ids = np.flatnonzero(early_V <= weights_V * (time * _ROUNDING))
    if len(ids) > _CROWD:
        probe = ids[:: len(ids) // (_CROWD // 2)]
        with np.errstate(divide="ignore"):
            time = min(time, float((clock(uniform(bits_V[probe])) / weights_V[probe]).min()))
        ids = ids[early_V[ids] <= weights_V[ids] * (time * _ROUNDING)]
    return ids
