"""The distribution behind a row's draw, for verifiers that compare it with a drafter's.

Invariant: `Chances.distribution` is what `LogitsPipeline.draw` draws from: the same tokens, after the same filters.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from decoding.candidates import Candidates, narrow
from decoding.distribution import Distribution
from decoding.draws import outcome
from decoding.filters import is_filtered, thresholds
from decoding.reader import Logits
from decoding.rows import Draw


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chances:
    """One row before its draw.

    Attributes:
        distribution: None where no token can be drawn.
        nothing: the outcome of such a row.
    """

    distribution: Distribution | None = None
    nothing: Draw | None = None
    _row: Candidates | None = None
    _scaled_C: Logits | None = None

    def drawn(self, token: int) -> Draw:
        """The outcome where ``token``, one of the distribution's, is what was drawn."""
        assert self._row is not None
        assert self._scaled_C is not None
        return outcome(self._row, self._scaled_C, int(np.searchsorted(self._row.ids_C, token)), self._row.mass)


def chances(row: Candidates) -> Chances:
    """The distribution of a row that has every legal token among its candidates."""
    if not row.params.temperature:
        best = int(row.ids_C[row.scaled_C.argmax()])
        return Chances(distribution=Distribution.point(best), _row=row, _scaled_C=row.scaled_C)
    scaled_C = row.scaled_C
    if is_filtered(row.params):
        row = narrow(row)
        scaled_C = row.scaled_C
        least = thresholds(scaled_C[None], [row.params], [row.mass])[0, 0]
        scaled_C = np.where(scaled_C < least, -np.inf, scaled_C)
        row = replace(row, mass=None)
    distribution = Distribution.of(row.ids_C, np.exp(scaled_C))
    return Chances(distribution=distribution, _row=row, _scaled_C=scaled_C)
