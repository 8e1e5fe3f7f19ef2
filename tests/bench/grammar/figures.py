"""What the measurements of many schemas come to: verdicts, tallies, distributions.

Invariant: a schema is right only where the engine compiled it, accepted every valid instance (as it is written, or with
its keys in schema order), refused every invalid one, and did both a second time.
"""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tests.bench.grammar.records import NO_TIMES, Outcome, Record, Status, Times


class Verdict(enum.Enum):
    """What became of a schema; the worst thing that happened to it."""

    RIGHT = "right"
    UNDER = "valid refused"
    BROKE_OFF = "broke off"
    UNSTEADY = "unsteady"
    """The second pass said something else than the first."""
    OVER = "invalid accepted"
    REFUSED = "schema refused"
    TIMEOUT = "timeout"
    CRASHED = "crashed"


_OF_STATUS = {
    Status.REFUSED: Verdict.REFUSED,
    Status.COMPILE_TIMEOUT: Verdict.TIMEOUT,
    Status.WALK_TIMEOUT: Verdict.TIMEOUT,
    Status.CRASHED: Verdict.CRASHED,
}


def verdict(record: Record, *, as_written: bool = False) -> Verdict:
    """The verdict on one schema; ``as_written`` takes no other order of keys for an answer."""
    if record.status in _OF_STATUS:
        return _OF_STATUS[record.status]
    assert record.first is not None
    assert record.second is not None
    outcomes = record.first.outcomes
    if any(outcome.accepted and not outcome.is_valid for outcome in outcomes):
        return Verdict.OVER
    if [_answers(outcome) for outcome in outcomes] != [_answers(outcome) for outcome in record.second.outcomes]:
        return Verdict.UNSTEADY
    if any(outcome.accepted is None for outcome in outcomes):
        return Verdict.BROKE_OFF
    if any(outcome.is_valid and not accepts(outcome, as_written=as_written) for outcome in outcomes):
        return Verdict.UNDER
    return Verdict.RIGHT


def accepts(outcome: Outcome, *, as_written: bool = False) -> bool:
    """Whether an instance was accepted in the order of its own keys or, unless ``as_written``, of the schema's."""
    return outcome.accepted is True or (not as_written and outcome.ordered_accepted is True)


def is_told_impossible(record: Record) -> bool:
    """Whether a schema was refused because no value is valid under it: of all refusals the one that may be right."""
    return record.status is Status.REFUSED and " is impossible" in record.error


def _answers(outcome: Outcome) -> tuple[bool | None, bool | None]:
    return outcome.accepted, outcome.ordered_accepted


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Counts over schemas, and of instances where the name says so."""

    schemas: int
    verdicts: Counter[Verdict]
    right_as_written: int
    told_impossible: int
    valid_instances_refused: int
    invalid_instances_accepted: int

    @property
    def right(self) -> int:
        """How many schemas are right."""
        return self.verdicts[Verdict.RIGHT]

    @property
    def share(self) -> float:
        """Right ones of all, percent."""
        return 100 * self.right / self.schemas


def tally(records: Sequence[Record]) -> Tally:
    """Count."""
    outcomes = [outcome for record in records if record.first for outcome in record.first.outcomes]
    return Tally(
        schemas=len(records),
        verdicts=Counter(map(verdict, records)),
        right_as_written=sum(verdict(record, as_written=True) is Verdict.RIGHT for record in records),
        told_impossible=sum(map(is_told_impossible, records)),
        valid_instances_refused=sum(outcome.is_valid and not accepts(outcome) for outcome in outcomes),
        invalid_instances_accepted=sum(not outcome.is_valid and outcome.accepted is True for outcome in outcomes),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Mean, percentiles by nearest rank, and the largest; nan where nothing was measured."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    largest: float

    @classmethod
    def of(cls, values: npt.ArrayLike) -> Distribution:
        """Sort and look up."""
        ordered = np.sort(np.asarray(values, dtype=np.float64))
        if not len(ordered):
            nan = math.nan
            return cls(count=0, mean=nan, p50=nan, p90=nan, p99=nan, largest=nan)
        p50, p90, p99 = (float(ordered[math.ceil(share * len(ordered) / 100) - 1]) for share in (50, 90, 99))
        return cls(
            count=len(ordered), mean=float(ordered.mean()), p50=p50, p90=p90, p99=p99, largest=float(ordered[-1])
        )

    def cells(self) -> tuple[float, ...]:
        """As the tables show it."""
        return self.mean, self.p50, self.p90, self.p99, self.largest


def first_masks_ms(records: Iterable[Record], *, cpu: bool = False) -> list[float]:
    """Compile to first mask of every schema that compiled, milliseconds."""
    compiled = [record.compiled for record in records if record.compiled]
    return [1e3 * (part.cpu_s if cpu else part.compile_s + part.first_mask_s) for part in compiled]


def repeats_ms(records: Iterable[Record]) -> list[float]:
    """The same of a schema that is in the cache."""
    return [1e3 * record.repeat_s for record in records if record.repeat_s is not None]


def steps_us(records: Iterable[Record], which: str, column: str) -> Times:
    """A column of `Steps` over all schemas of the pass ``which``, "first" or "second"."""
    passes = [getattr(record, which) for record in records]
    arrays = [getattr(walked.steps, column) for walked in passes if walked]
    return np.concatenate(arrays) if arrays else NO_TIMES
