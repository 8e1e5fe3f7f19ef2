"""Whether a drafter is worth asking.

Guesses cost time before any of them is computed: a pass of a draft model, or microseconds of an index. What they save
is known after the trees are pruned. Both are kept as running means, apart for each place: drafter, constraint or none,
and size of the batch. Where a drafter does not pay it is asked now and then, as often as a hundredth of the time
allows. Invariant: no drafter is given up for good.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

EXPLORATION = 0.01
"""Share of the time that a drafter which does not pay may take. One that never takes more is always asked."""
PATIENCE = 8
"""So often a drafter is asked before it is judged: what it saves is estimated by chances that have to be learnt."""
EARLY_EXPLORATION = 0.05
"""Share of the time until then."""
_WEIGHT = 0.1
"""Share of a new observation in a running mean, which is a plain one at first."""


class Place(NamedTuple):
    """What trials are told apart by."""

    source: str
    is_constrained: bool
    load: int
    """Bits of the number of sequences in the step: 1, 2 to 3, 4 to 7, …"""


@dataclass(slots=True, kw_only=True)
class _Trial:
    saved: float = 0.0
    cost: float = 0.0
    times: int = 0
    asked_at: float = 0.0


class Trials:
    """Milliseconds saved and spent per tree, by place."""

    def __init__(self) -> None:
        self._trials: dict[Place, _Trial] = {}
        self._now = 0.0

    def advance(self, ms: float) -> None:
        """So much time went by."""
        self._now += ms

    def asks(self, place: Place, trees: int) -> bool:
        """Whether to ask the drafter for this many trees; counts as asked where it is."""
        trial = self._trials.setdefault(place, _Trial())
        share = EXPLORATION if trial.times >= PATIENCE else EARLY_EXPLORATION
        waited = self._now - trial.asked_at
        if trial.times and trial.saved < trial.cost and trees * trial.cost > share * waited:
            return False
        trial.asked_at = self._now
        return True

    def learn(self, place: Place, *, saved: float, cost: float) -> None:
        """A drafter that was asked saved and cost so many milliseconds per tree."""
        trial = self._trials.setdefault(place, _Trial())
        trial.times += 1
        weight = max(_WEIGHT, 1 / trial.times)
        trial.saved += weight * (saved - trial.saved)
        trial.cost += weight * (cost - trial.cost)
