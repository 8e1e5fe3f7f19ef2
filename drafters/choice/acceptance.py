"""How likely a guess is to be accepted, learnt while serving.

A guess is described by its drafter, by what the grammar leaves open where it is made, by its rank among its siblings,
and by whether it goes on where another guess of its drafter ended. Each kind has a rate with exponential forgetting,
and each sequence scales the rates of a drafter by how its own record compares with them.
Invariant: a rate stays strictly between 0 and 1, so that no kind of guess is ever given up for good.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from decoding.masks import MaskRow

HALF_LIFE = 200.0
"""Observations after which an old one counts half."""
_PRIOR = 4.0
"""Observations that the starting rate of a kind is worth, and guesses that the common rate is worth to a sequence."""
_START = 0.5
_MAX_RANK = 3
_LIMIT = 0.995
"""No guess is held to be more certain, and none less than the opposite."""


class Openness(enum.Enum):
    """What a constraint leaves open where a guess is made."""

    FREE = "free"
    """No constraint."""
    FEW = "few"
    """At most 8 tokens: punctuation, or the start of a forced text."""
    SOME = "some"
    """At most 256: a number, or one of some names."""
    MANY = "many"
    """More: the inside of a string."""

    @classmethod
    def of(cls, mask: MaskRow | None) -> Openness:
        """How open a row is."""
        if mask is None:
            return cls.FREE
        if mask.num_legal <= 8:
            return cls.FEW
        return cls.SOME if mask.num_legal <= 256 else cls.MANY


class Kind(NamedTuple):
    """What guesses are told apart by."""

    source: str
    openness: Openness
    rank: int
    goes_on: bool = False

    @classmethod
    def of(cls, source: str, openness: Openness, rank: int, *, goes_on: bool = False) -> Kind:
        """``rank`` counts siblings before it; the late ones count as one. ``goes_on``: below a guess of its source."""
        return cls(source, openness, min(rank, _MAX_RANK), goes_on)


class _Rate:
    """A share of successes under exponential forgetting, leaning towards ``prior`` while little was seen."""

    __slots__ = ("seen", "successes")

    def __init__(self) -> None:
        self.seen = 0.0
        self.successes = 0.0

    def value(self, prior: float) -> float:
        return (self.successes + _PRIOR * prior) / (self.seen + _PRIOR)

    def learn(self, *, success: bool, keep: float) -> None:
        self.seen = self.seen * keep + 1
        self.successes = self.successes * keep + success

    def fade(self, keep: float) -> None:
        self.seen *= keep
        self.successes *= keep


class _Record:
    """Of one drafter and sequence: successes beside those that the common rates expected."""

    __slots__ = ("expected", "successes")

    def __init__(self) -> None:
        self.expected = 0.0
        self.successes = 0.0

    @property
    def factor(self) -> float:
        return (self.successes + 0.5 * _PRIOR) / (self.expected + 0.5 * _PRIOR)

    def learn(self, expected: float, *, success: bool, keep: float) -> None:
        self.expected = self.expected * keep + expected
        self.successes = self.successes * keep + success

    def fade(self, keep: float) -> None:
        self.expected *= keep
        self.successes *= keep


class Acceptance:
    """Rates by kind over all sequences, and how each sequence compares with them."""

    def __init__(self, half_life: float = HALF_LIFE) -> None:
        self._keep = 0.5 ** (1 / half_life)
        self._kinds: dict[Kind, _Rate] = {}
        self._own: dict[int, dict[str, _Record]] = {}

    def chance(self, kind: Kind, sequence_id: int) -> float:
        """How likely a guess of this kind is to be accepted once its parent was."""
        common = self._common(kind)
        own = self._own.get(sequence_id, {}).get(kind.source)
        return common if own is None else min(max(common * own.factor, 1 - _LIMIT), _LIMIT)

    def learn(self, kind: Kind, sequence_id: int, *, accepted: bool) -> None:
        """The parent of a guess of this kind was accepted; was it?"""
        record = self._own.setdefault(sequence_id, {}).setdefault(kind.source, _Record())
        record.learn(self._common(kind), success=accepted, keep=self._keep)
        self._kinds.setdefault(kind, _Rate()).learn(success=accepted, keep=self._keep)

    def fade(self, source: str) -> None:
        """A drafter was not asked: what is known of it ages, so that it is tried again in time."""
        for kind, rate in self._kinds.items():
            if kind.source == source:
                rate.fade(self._keep)
        for records in self._own.values():
            if (own := records.get(source)) is not None:
                own.fade(self._keep)

    def forget(self, sequence_id: int) -> None:
        """Drop a sequence's own record."""
        self._own.pop(sequence_id, None)

    def rates(self) -> dict[str, float]:
        """By drafter, the share of its guesses that were accepted where their parents were."""
        totals: dict[str, tuple[float, float]] = {}
        for kind, rate in self._kinds.items():
            successes, seen = totals.get(kind.source, (0.0, 0.0))
            totals[kind.source] = successes + rate.successes, seen + rate.seen
        return {source: successes / seen for source, (successes, seen) in totals.items() if seen > 0}

    def _common(self, kind: Kind) -> float:
        start = _START / (1 + kind.rank)
        rate = self._kinds.get(kind)
        return min(max(start if rate is None else rate.value(start), 1 - _LIMIT), _LIMIT)
