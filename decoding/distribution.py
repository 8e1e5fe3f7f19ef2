"""Probabilities on token ids, sparse: what a verifier that compares draft and target works on.

Invariant: the ids of a `Distribution` ascend, and its probabilities are above 0 and sum to 1 up to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from decoding.keyed import gumbel, mix, strides, uniform

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Distribution:
    """A distribution over the next token.

    Attributes:
        ids_C: int64, ascending; every id that can be drawn.
        probs_C: float64, their probabilities.
    """

    ids_C: Ids
    probs_C: Floats

    @classmethod
    def of(cls, ids_C: Ids, weights_C: npt.NDArray[np.floating]) -> Distribution:
        """Normalise ``weights_C``, not negative and not all 0, over ascending ids; what weighs nothing is left out."""
        weights = weights_C.astype(np.float64)
        positive = weights > 0
        if not positive.all():
            ids_C, weights = ids_C[positive], weights[positive]
        return cls(ids_C=ids_C, probs_C=weights / weights.sum())

    @classmethod
    def point(cls, token: int) -> Distribution:
        """All the mass on one token."""
        return cls(ids_C=np.array([token], dtype=np.int64), probs_C=np.ones(1))

    def __len__(self) -> int:
        return len(self.ids_C)

    def of_token(self, token: int) -> float:
        """The probability of ``token``."""
        index = int(np.searchsorted(self.ids_C, token))
        return float(self.probs_C[index]) if index < len(self.ids_C) and self.ids_C[index] == token else 0.0

    def without(self, token: int) -> Distribution | None:
        """The distribution on condition that ``token`` is not drawn; None where nothing else can be."""
        rest = self.ids_C != token
        return Distribution.of(self.ids_C[rest], self.probs_C[rest]) if rest.any() else None

    def residual(self, other: Distribution) -> Distribution | None:
        """``max(0, self - other)``, normalised; None where that is 0 everywhere."""
        left = self.probs_C.copy()
        where = np.searchsorted(other.ids_C, self.ids_C)
        inside = where < len(other.ids_C)
        shared = np.flatnonzero(inside)[other.ids_C[where[inside]] == self.ids_C[inside]]
        left[shared] -= other.probs_C[where[shared]]
        np.maximum(left, 0.0, out=left)
        return Distribution.of(self.ids_C, left) if left.any() else None

    def draw(self, key: int, count: int = 1) -> tuple[int, ...]:
        """At most ``count`` distinct tokens, each drawn from what the ones before it left.

        Gumbel-top-k (Kool et al. 2019) with the noise of ``key``.
        """
        scores_C = np.log(self.probs_C) + gumbel(uniform(mix(np.uint64(key), strides(self.ids_C))))
        best = np.argsort(-scores_C, kind="stable")[:count]
        return tuple(self.ids_C[best].tolist())
