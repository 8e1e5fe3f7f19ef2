"""What all benchmarks share: options, interleaved rounds, tables, targets, results as JSON.

Every figure is a median over rounds in which the cases take turns, so that a slow minute of the machine hits all of
them; the spread beside it is half the distance between the quartiles.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One thing to measure: ``run`` does it once and returns its figure."""

    name: str
    run: Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The figures of one case over all rounds."""

    median: float
    spread: float
    rounds: tuple[float, ...]

    @classmethod
    def of(cls, rounds: Sequence[float]) -> Sample:
        """Median and half the interquartile range."""
        if len(rounds) < 2:
            return cls(median=rounds[0], spread=0.0, rounds=tuple(rounds))
        low, _, high = statistics.quantiles(rounds, n=4, method="inclusive")
        return cls(median=statistics.median(rounds), spread=(high - low) / 2, rounds=tuple(rounds))


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A figure that `--check` holds a benchmark to: at least, or at most, a bound."""

    name: str
    value: float
    at_least: float | None = None
    at_most: float | None = None

    @property
    def is_met(self) -> bool:
        """Whether the figure is within its bound."""
        above = self.at_least is None or self.value >= self.at_least
        return above and (self.at_most is None or self.value <= self.at_most)

    def line(self) -> str:
        """One line: figure, bound, verdict."""
        bound = f">= {self.at_least:g}" if self.at_least is not None else f"<= {self.at_most:g}"
        return f"{'ok    ' if self.is_met else 'MISSED'} {self.name}: {self.value:.4g} ({bound})"


@dataclass(slots=True, kw_only=True)
class Report:
    """What a benchmark found."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[object, ...]] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)

    def print(self) -> None:
        """The table, then the targets."""
        cells = [self.columns, *(tuple(_cell(value) for value in row) for row in self.rows)]
        widths = [max(len(row[column]) for row in cells) for column in range(len(self.columns))]
        print(f"\n{self.title}")
        for index, row in enumerate(cells):
            left = row[0].ljust(widths[0])
            print("  ".join([left, *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]))
            if index == 0:
                print("  ".join("-" * width for width in widths))
        for target in self.targets:
            print(target.line())


def interleave(cases: Sequence[Case], rounds: int, *, warm_up: int = 1) -> dict[str, Sample]:
    """Run the cases in turn, ``rounds`` times after ``warm_up`` rounds that do not count."""
    figures: dict[str, list[float]] = {case.name: [] for case in cases}
    for number in range(warm_up + rounds):
        for case in cases:
            figure = case.run()
            if number >= warm_up:
                figures[case.name].append(figure)
    return {name: Sample.of(values) for name, values in figures.items()}


def options(description: str | None) -> argparse.ArgumentParser:
    """A parser with what every benchmark takes."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, under two minutes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results as JSON")
    parser.add_argument("--check", action="store_true", help="exit 1 where a target is missed")
    return parser


def finish(reports: Sequence[Report], arguments: argparse.Namespace, settings: Mapping[str, object]) -> int:
    """Print the reports, write the JSON, and return the exit status."""
    for report in reports:
        report.print()
    if arguments.json:
        result = {"machine": machine(), "settings": dict(settings), "reports": [asdict(report) for report in reports]}
        arguments.json.write_text(json.dumps(result, indent=1, default=str) + "\n", encoding="utf-8")
    missed = [target for report in reports for target in report.targets if not target.is_met]
    if arguments.check and missed:
        print(f"\n{missed[0].line()}")
        return 1
    return 0


def machine() -> dict[str, object]:
    """The hardware and versions that the figures belong to."""
    capabilities = torch.cpu.get_capabilities()
    return {
        "cpu": capabilities.get("cpu_name", platform.processor()),
        "cores": capabilities.get("num_physical_cores"),
        "threads": torch.get_num_threads(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": sys.version.split()[0],
        "torch": torch.__version__,
    }


def _cell(value: object) -> str:
    if isinstance(value, Sample):
        return f"{value.median:.4g} ±{value.spread:.2g}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
