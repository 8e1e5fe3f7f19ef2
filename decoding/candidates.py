"""The tokens of one row that can still be drawn, and how a wide row is narrowed to them.

Invariant: narrowing never changes a draw or a log-probability: it only leaves out tokens that the filters would cut or
that cannot win the draw, and remembers the mass of all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from decoding.filters import floor, is_filtered, nth_largest
from decoding.keyed import Bits, clock, mix, uniform
from decoding.params import SamplingParams

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.floating]

_CROWD = 512  # contenders beyond which a tighter bound is sought before their exact times are computed
_ROUNDING = 1 + 1e-5  # covers float32's rounding of weights


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidates:
    """Tokens of one row with their scaled logits.

    Attributes:
        ids_C: ascending token ids.
        scaled_C: (logit - largest legal logit of the row) / temperature; -inf for a forbidden token.
        mass: sum of exp(scaled) over the whole row where tokens were left out and it is needed, else None.
    """

    ids_C: Ids
    scaled_C: Floats
    mass: float | None = None


def scale(logits_C: Floats, largest: float, temperature: float) -> Floats:
    """(logits - largest) / temperature, at most 0; temperature 0 stands for the undivided distribution.

    A temperature that the dtype cannot hold counts as its least normal number, so that 0 / 0 never arises. What scales
    beyond the dtype's range is -inf: its probability is 0.
    """
    shifted_C = logits_C - largest
    if temperature in (0, 1):
        return shifted_C
    return shifted_C / max(temperature, float(np.finfo(shifted_C.dtype).tiny))


def narrow(scaled_V: Floats, params: SamplingParams, key: int, strides_V: Bits) -> Candidates:
    """The candidates of a wide row whose id is its index; ``strides_V`` are `keyed.strides` of all ids."""
    if params.temperature and is_filtered(params):
        mass = total_mass(scaled_V) if params.top_p < 1 and not params.top_k else None
        ids = np.flatnonzero(scaled_V >= floor(scaled_V, params, mass))
    else:
        mass = None if params.logprobs is None else total_mass(scaled_V)
        ids = contenders(scaled_V, key, strides_V) if params.temperature else leaders(scaled_V, 1)
        if params.logprobs:
            ids = np.union1d(ids, leaders(scaled_V, params.logprobs))
    return Candidates(ids_C=ids, scaled_C=scaled_V[ids], mass=mass)


def total_mass(scaled_C: Floats) -> float:
    """Sum of exp(scaled), the most likely token weighing 1."""
    return float(np.exp(scaled_C).sum(dtype=np.float64))


def leaders(scaled_V: Floats, count: int) -> Ids:
    """Ids of the ``count`` most likely legal tokens and of all that equal the last of them."""
    return np.flatnonzero(scaled_V >= nth_largest(scaled_V, count))


def contenders(scaled_V: Floats, key: int, strides_V: Bits) -> Ids:
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
