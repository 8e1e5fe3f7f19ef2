"""Tables and targets of the grammar benchmark.

Invariant: a target speaks of our engine under wall time; the cpu columns tell a busy machine
from slow code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.bench.grammar.figures import (
    Distribution,
    Tally,
    Verdict,
    first_masks_ms,
    repeats_ms,
    steps_us,
    tally,
)
from tests.bench.grammar.records import Held, Record
from tests.bench.harness import Report, Target

OURS, PEER = "espalier", "llguidance"
Records = Mapping[str, Sequence[Record]]
"""By engine, one record a schema."""

_DISTRIBUTION = ("mean", "p50", "p90", "p99", "largest")


def verdicts(title: str, records: Records) -> Report:
    """Who is right about which schemas."""
    columns = (
        "engine", "schemas", "right", "%", "right as written", "refused", "told impossible", "timeout", "crashed",
        "valid refused", "invalid accepted", "broke off", "unsteady",
    )  # fmt: skip
    report = Report(title=title, columns=columns)
    for engine, of_engine in records.items():
        report.rows.append((engine, *_cells(tally(of_engine))))
    return report


def _cells(counted: Tally) -> tuple[object, ...]:
    of = counted.verdicts
    return (
        counted.schemas, counted.right, counted.share, counted.right_as_written, of[Verdict.REFUSED],
        counted.told_impossible, of[Verdict.TIMEOUT], of[Verdict.CRASHED], counted.valid_instances_refused,
        counted.invalid_instances_accepted, of[Verdict.BROKE_OFF], of[Verdict.UNSTEADY],
    )  # fmt: skip


def maskbench_targets(records: Records) -> list[Target]:
    """Right about 95 % and more than llguidance, and nothing over-accepted."""
    ours = tally(records[OURS])
    targets = [
        Target(name="maskbench right, %", value=ours.share, at_least=95),
        Target(name="maskbench invalid accepted", value=ours.invalid_instances_accepted, at_most=0),
    ]
    if PEER in records:
        theirs = tally(records[PEER]).right
        targets.append(Target(name="maskbench right, more than llguidance", value=ours.right, at_least=theirs + 1))
    return targets


def micro_targets(records: Records) -> list[Target]:
    """At least 80 of the 83 checks."""
    ours = tally(records[OURS])
    return [
        Target(name="micro right", value=ours.right, at_least=80),
        Target(name="micro invalid accepted", value=ours.invalid_instances_accepted, at_most=0),
    ]


def suite_targets(records: Records) -> list[Target]:
    """Right about 88 % of the groups, the rest refused by name."""
    (ours,) = (tally(of_engine) for engine, of_engine in records.items() if engine.startswith(OURS))
    return [
        Target(name="suite right, %", value=ours.share, at_least=88),
        Target(name="suite invalid accepted", value=ours.invalid_instances_accepted, at_most=0),
    ]


def compile_times(title: str, records: Records) -> Report:
    """Milliseconds to the first mask, of a new schema and of one that is known."""
    columns = ("engine", "schemas", *_DISTRIBUTION, "cpu p50", "cpu p99", "known p50", "known p99")
    report = Report(title=f"{title}: compile + first mask, ms", columns=columns)
    for engine, of_engine in records.items():
        wall = Distribution.of(first_masks_ms(of_engine))
        cpu = Distribution.of(first_masks_ms(of_engine, cpu=True))
        known = Distribution.of(repeats_ms(of_engine))
        report.rows.append((engine, wall.count, *wall.cells(), cpu.p50, cpu.p99, known.p50, known.p99))
    wall = Distribution.of(first_masks_ms(records[OURS]))
    known = Distribution.of(repeats_ms(records[OURS]))
    report.targets = [
        Target(name="compile + first mask p50, ms", value=wall.p50, at_most=5),
        Target(name="compile + first mask p90, ms", value=wall.p90, at_most=30),
        Target(name="compile + first mask p99, ms", value=wall.p99, at_most=300),
        Target(name="known schema p50, ms", value=known.p50, at_most=0.1),
    ]
    return report


def step_times(title: str, records: Records) -> Report:
    """Microseconds per token: masks and advances, states new and known; then over the schemas that llguidance takes."""
    columns = (
        "engine", "tokens", *_DISTRIBUTION, "cpu mean", "cpu p99", "cpu largest", "again mean", "again p50",
        "again mask p50",
    )  # fmt: skip
    report = Report(title=f"{title}: mask + advance of a token, µs", columns=columns)
    for engine, of_engine in records.items():
        report.rows.append((engine, *_step_cells(of_engine)))
    if PEER in records:
        taken = {record.name for record in records[PEER] if record.first}
        shared = [record for record in records[OURS] if record.name in taken]
        report.rows.append((f"{OURS}, where {PEER} compiles", *_step_cells(shared)))
    report.targets = _step_targets(records)
    return report


def _step_cells(records: Sequence[Record]) -> tuple[object, ...]:
    first = Distribution.of(steps_us(records, "first", "step_us"))
    cpu = Distribution.of(steps_us(records, "first", "cpu_us"))
    again = Distribution.of(steps_us(records, "second", "step_us"))
    row = Distribution.of(steps_us(records, "second", "mask_us"))
    return first.count, *first.cells(), cpu.mean, cpu.p99, cpu.largest, again.mean, again.p50, row.p50


def _step_targets(records: Records) -> list[Target]:
    ours = Distribution.of(steps_us(records[OURS], "first", "step_us"))
    again = Distribution.of(steps_us(records[OURS], "second", "step_us"))
    row = Distribution.of(steps_us(records[OURS], "second", "mask_us"))
    targets = [
        Target(name="mask + advance p50, µs", value=ours.p50, at_most=4),
        Target(name="mask + advance largest, µs", value=ours.largest, at_most=20_000),
        Target(name="second pass mean, µs", value=again.mean, at_most=4),
        Target(name="row of a known state p50, µs", value=row.p50, at_most=1),
    ]
    if PEER in records:
        theirs = Distribution.of(steps_us(records[PEER], "first", "step_us"))
        targets += [
            Target(name="mask + advance mean, as llguidance, µs", value=ours.mean, at_most=theirs.mean),
            Target(name="mask + advance p99, as llguidance, µs", value=ours.p99, at_most=theirs.p99),
        ]
    return targets


def slowest(title: str, records: Sequence[Record], count: int = 10) -> Report:
    """Where our own time goes: the schemas that were slowest to compile, and those with the slowest steps, cpu time."""
    report = Report(
        title=f"{title}: the slowest schemas of {OURS}, cpu ms",
        columns=("schema", "compile + first mask", "largest step", "all steps", "tokens"),
    )
    compiled = [record for record in records if record.compiled and record.first and len(record.first.steps.cpu_us)]
    by_compile = sorted(compiled, key=lambda record: -_cpu_ms(record)[0])[:count]
    by_step = sorted(compiled, key=lambda record: -_cpu_ms(record)[1])[:count]
    chosen = {record.name: record for record in (*by_compile, *by_step)}
    report.rows += [(name, *_cpu_ms(record)) for name, record in chosen.items()]
    return report


def _cpu_ms(record: Record) -> tuple[float, float, float, int]:
    assert record.compiled is not None
    assert record.first is not None
    steps = record.first.steps.cpu_us
    return 1e3 * record.compiled.cpu_s, float(steps.max()) / 1e3, float(steps.sum()) / 1e3, len(steps)


def memory(title: str, held: Mapping[str, Held | None]) -> Report:
    """Memory of schemas that are kept with their masks."""
    report = Report(
        title=f"{title}: memory of compiled schemas, with the masks of their valid instances, MB",
        columns=("engine", "schemas", "growth of the process", "counted by the engine"),
    )
    for engine, of_engine in held.items():
        if of_engine is None:
            report.rows.append((engine, "did not survive", "", ""))
            continue
        own = "" if of_engine.own_bytes is None else of_engine.own_bytes / 1e6
        report.rows.append((engine, of_engine.schemas, of_engine.rss_bytes / 1e6, own))
    ours = held[OURS]
    grown = float("inf") if ours is None else ours.rss_bytes / 1e6
    report.targets = [Target(name="memory of compiled schemas, MB", value=grown, at_most=1000)]
    return report
