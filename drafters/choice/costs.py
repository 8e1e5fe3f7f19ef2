"""What a step costs by its number of rows.

    ms   |                 o
         |          o             measured at powers of two and refined by every step that is observed;
         |  o  o                  between them a straight line, past the last one the slope before it
         +--1--2----4------8-- rows

What makes all steps slower alike (a busy machine, work beside the forward pass) goes into one factor, which follows
quickly; what is left moves the points beside a step, slowly, so that noise does not bend the curve.
Invariant: the table never falls: a step with more rows is never held to be cheaper, whatever noise was measured.
"""

from __future__ import annotations

import bisect
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

MEASURED_ROWS = (1, 2, 4, 8, 16, 32, 64)
"""Numbers of rows at which a table is measured."""
_WEIGHT = 0.02
"""Share of a new observation in the running mean of the points beside it."""
_FACTOR_WEIGHT = 0.1
"""Its share in the factor of all points."""


class CostTable:
    """Milliseconds of a step by rows."""

    def __init__(self, points: Mapping[int, float]) -> None:
        """``points`` maps numbers of rows, at least one, to milliseconds above 0."""
        if not points or min(points) < 1 or min(points.values()) <= 0:
            raise ValueError("a cost table needs points with at least one row and a cost above 0")
        self._rows = sorted(points)
        self._means = [points[rows] for rows in self._rows]
        self._rising = _rising(self._means)
        self._factor = 1.0

    @property
    def points(self) -> dict[int, float]:
        """Rows to milliseconds, as they are now."""
        return {rows: self._factor * mean for rows, mean in zip(self._rows, self._means, strict=True)}

    def ms(self, rows: int) -> float:
        """The cost of a step with this many rows, at least 1."""
        return self._factor * self._at(rows)

    def _at(self, rows: int) -> float:
        right = bisect.bisect_left(self._rows, rows)
        if right == 0:
            return self._rising[0]
        if right == len(self._rows):
            return self._beyond(rows)
        return _between(self._rows, self._rising, right, rows)

    def observe(self, rows: int, ms: float) -> None:
        """A step with this many rows took ``ms``, above 0. Moves the points beside it, the nearer one more.

        Steps past the last point, and outliers (ten times what was expected: the machine was busy with something
        else), tell nothing.
        """
        if rows > self._rows[-1] or ms > 10 * self.ms(rows):
            return
        self._factor *= (ms / self.ms(rows)) ** _FACTOR_WEIGHT
        error = ms / self._factor - self._at(rows)
        right = bisect.bisect_left(self._rows, rows)
        if self._rows[right] == rows or right == 0:
            shares = {right: 1.0}
        else:
            near = (rows - self._rows[right - 1]) / (self._rows[right] - self._rows[right - 1])
            shares = {right - 1: 1 - near, right: near}
        for index, share in shares.items():
            self._means[index] = max(1e-3, self._means[index] + _WEIGHT * share * error)
        self._rising = _rising(self._means)

    def _beyond(self, rows: int) -> float:
        if len(self._rows) == 1:
            return self._rising[0] * rows / self._rows[0]
        slope = (self._rising[-1] - self._rising[-2]) / (self._rows[-1] - self._rows[-2])
        return self._rising[-1] + slope * (rows - self._rows[-1])


def _between(rows: Sequence[int], costs: Sequence[float], right: int, wanted: int) -> float:
    low, high = rows[right - 1], rows[right]
    return costs[right - 1] + (costs[right] - costs[right - 1]) * (wanted - low) / (high - low)


def _rising(values: Sequence[float]) -> list[float]:
    """The nearest sequence, in squares, that never falls (pool adjacent violators: Ayer et al. 1955)."""
    pools: list[tuple[float, int]] = []
    for value in values:
        pools.append((value, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (left, many), (right, few) = pools[-2:]
            pools[-2:] = [((left * many + right * few) / (many + few), many + few)]
    return [mean for mean, count in pools for _ in range(count)]


def load_or_measure(
    path: Path, key: Mapping[str, object], measure: Callable[[Sequence[int]], Mapping[int, float]]
) -> CostTable:
    """The table that ``path`` keeps for ``key``, or a fresh one, which is kept there.

    Args:
        path: a JSON file; one that cannot be read is written anew, one that cannot be written costs the next start
            the measuring.
        key: what the costs depend on (machine, model, precision, threads).
        measure: milliseconds of steps with these numbers of rows.
    """
    kept = _read(path, key)
    if kept is not None:
        return kept
    table = CostTable(measure(MEASURED_ROWS))
    _write(path, key, table)
    return table


def _read(path: Path, key: Mapping[str, object]) -> CostTable | None:
    try:
        found = json.loads(path.read_text())
        if found["key"] != dict(key):
            return None
        return CostTable({int(rows): float(ms) for rows, ms in found["points"].items()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _write(path: Path, key: Mapping[str, object], table: CostTable) -> None:
    """In one rename, so that two processes at once leave one whole file."""
    text = json.dumps({"key": dict(key), "points": table.points}, indent=1)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        with os.fdopen(handle, "w") as file:
            file.write(text)
        Path(name).replace(path)
    except OSError:
        return
