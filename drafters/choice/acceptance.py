"""How likely a guess is to be accepted, learnt while serving.

A guess is described by its drafter, by what the grammar leaves open where it is made, and by its rank among its
siblings. Each kind has a rate with exponential forgetting, and each sequence leans the rate towards its own record.
Invariant: a rate stays strictly between 0 and 1, so that no kind of guess is ever given up for good.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from decoding.masks import MaskRow

HALF_LIFE = 200.0
"""Observations after which an old one counts half."""
_PRIOR = 4.0
"""Observations that the starting rate of a kind is worth, and a kind's rate is worth to a sequence."""
_START = 0.5
_MAX_RANK = 3


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

    @classmethod
    def of(cls, source: str, openness: Openness, rank: int) -> Kind:
        """``rank`` counts siblings before it; the late ones count as one."""
        return cls(source, openness, min(rank, _MAX_RANK))


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


class Acceptance:
    """Rates by kind, over all sequences and by sequence."""

    def __init__(self, half_life: float = HALF_LIFE) -> None:
        self._keep = 0.5 ** (1 / half_life)
        self._kinds: dict[Kind, _Rate] = {}
        self._own: dict[tuple[int, str], _Rate] = {}
        self._sources: dict[int, set[str]] = {}

    def chance(self, kind: Kind, sequence_id: int) -> float:
        """How likely a guess of this kind is to be accepted once its parent was."""
        rate = self._kinds.get(kind)
        common = _START / (1 + kind.rank) if rate is None else rate.value(_START / (1 + kind.rank))
        own = self._own.get((sequence_id, kind.source))
        # A sequence's record mixes all ranks and places, so that it moves the odds and does not replace the rate.
        return common if own is None or kind.rank else own.value(common)

    def learn(self, kind: Kind, sequence_id: int, *, accepted: bool) -> None:
        """The parent of a guess of this kind was accepted; was it?"""
        self._kinds.setdefault(kind, _Rate()).learn(success=accepted, keep=self._keep)
        if not kind.rank:
            self._own.setdefault((sequence_id, kind.source), _Rate()).learn(success=accepted, keep=self._keep)
            self._sources.setdefault(sequence_id, set()).add(kind.source)

    def fade(self, sequence_id: int, source: str) -> None:
        """A drafter's guesses were not offered: what is known of it ages, so that it is tried again in time."""
        own = self._own.get((sequence_id, source))
        if own is not None:
            own.fade(self._keep**4)
        for kind, rate in self._kinds.items():
            if kind.source == source:
                rate.fade(self._keep)

    def forget(self, sequence_id: int) -> None:
        """Drop a sequence's own record."""
        for source in self._sources.pop(sequence_id, ()):
            del self._own[sequence_id, source]
