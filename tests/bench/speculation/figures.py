"""The arithmetic of the benchmark: speed-ups round by round, shares of the step, texts that differ, targets.

Invariant: runs are compared with runs of the same round, prompts and batch, so that both saw the same machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.bench.harness import Sample, Target
from tests.bench.speculation.runs import STAGES, Reference, Run

NONE, AUTO = "none", "auto"
MODEL_FREE = ("forced", "ngram", "forced+ngram", "suffix", "forced+alternatives+ngram")
"""Named drafters whose guesses take no model."""
EXTRACTION = ("extraction, compact", "extraction, spaced")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Texts that are not those of plain decoding, and the widest gap between the two best tokens where they part."""

    texts: int
    widest_gap: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One drafter on one workload at one batch size.

    Attributes:
        tokens_per_forward: per sequence and step.
        rows_per_forward: per sequence and step.
        stage_ms: milliseconds of a step by stage.
        overhead: share of drafting and masks in the step.
        tokens_per_s: of the whole batch.
        speed_up: against `none`, round by round.
        difference: from plain decoding.
    """

    tokens_per_forward: float
    rows_per_forward: float
    stage_ms: Mapping[str, float]
    overhead: float
    tokens_per_s: Sample
    speed_up: Sample
    difference: Difference


def cell(runs: Sequence[Run], none: Sequence[Run], references: Sequence[Reference]) -> Cell:
    """Figures of ``runs``, whose rounds are those of ``none`` and of ``references``."""
    steps = sum(run.steps for run in runs)
    taken = sum(run.sequence_steps for run in runs)
    spent = {stage: sum(run.stages[stage] for run in runs) for stage in STAGES}
    return Cell(
        tokens_per_forward=sum(run.tokens for run in runs) / taken,
        rows_per_forward=sum(run.rows for run in runs) / taken,
        stage_ms={stage: 1e3 * seconds / steps for stage, seconds in spent.items()},
        overhead=(spent["draft"] + spent["mask"]) / sum(run.seconds for run in runs),
        tokens_per_s=Sample.of([_speed(run) for run in runs]),
        speed_up=Sample.of([_speed(run) / _speed(other) for run, other in zip(runs, none, strict=True)]),
        difference=difference([run.texts for run in runs], references),
    )


def difference(texts: Sequence[Sequence[Sequence[int]]], references: Sequence[Reference]) -> Difference:
    """Compare the texts of every round with those of its reference."""
    gaps = [
        known_gaps[at]
        for round_texts, reference in zip(texts, references, strict=True)
        for text, known, known_gaps in zip(round_texts, reference.texts, reference.gaps, strict=True)
        if (at := first_difference(text, known)) is not None
    ]
    return Difference(texts=len(gaps), widest_gap=max(gaps, default=0.0))


def first_difference(text: Sequence[int], known: Sequence[int]) -> int | None:
    """Where a text parts from the known one; None where it does not. A text that ends early parts at its end."""
    if tuple(text) == tuple(known):
        return None
    parted = (at for at, (ours, theirs) in enumerate(zip(text, known, strict=False)) if ours != theirs)
    return next(parted, min(len(text), len(known) - 1))


def targets(cells: Mapping[tuple[str, int], Mapping[str, Cell]]) -> list[Target]:
    """What `--check` asks, of cells by (workload, batch) and drafter."""
    found: list[Target] = []
    for (workload, batch), drafters in cells.items():
        where = f"{workload}, batch {batch}"
        if workload in EXTRACTION and batch == 1 and "forced+ngram" in drafters:
            value = drafters["forced+ngram"].speed_up.median
            found.append(Target(name=f"{where}: forced+ngram / none", value=value, at_least=1.8))
        if AUTO in drafters:
            found += _of_auto(where, drafters)
        free = [drafters[name] for name in MODEL_FREE if name in drafters]
        if free:
            share = max(cell.overhead for cell in free)
            found.append(Target(name=f"{where}: masks and model-free drafting / step", value=share, at_most=0.08))
    return found


def _of_auto(where: str, drafters: Mapping[str, Cell]) -> list[Target]:
    auto = drafters[AUTO].speed_up
    found = [Target(name=f"{where}: auto / none", value=auto.median, at_least=0.97)]
    named = {name: found.speed_up for name, found in drafters.items() if name not in (NONE, AUTO)}
    if named:
        best = max(named, key=lambda name: named[name].median)
        ratio = Sample.of([mine / theirs for mine, theirs in zip(auto.rounds, named[best].rounds, strict=True)])
        found.append(Target(name=f"{where}: auto / {best}", value=ratio.median, at_least=0.95))
    return found


def _speed(run: Run) -> float:
    return run.tokens / run.seconds
