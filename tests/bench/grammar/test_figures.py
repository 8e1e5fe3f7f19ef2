"""The benchmark's own arithmetic, on records made by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.bench.grammar.figures import (
    Distribution,
    Verdict,
    first_masks_ms,
    is_told_impossible,
    repeats_ms,
    steps_us,
    tally,
    verdict,
)
from tests.bench.grammar.records import Compiled, Outcome, Record, Status, Steps, Walked
from tests.bench.grammar.report import (
    OURS,
    PEER,
    compile_times,
    maskbench_targets,
    slowest,
    step_times,
    suite_targets,
)

VALID_ACCEPTED = Outcome(is_valid=True, accepted=True)
VALID_REFUSED = Outcome(is_valid=True, accepted=False)
VALID_IN_ORDER = Outcome(is_valid=True, accepted=False, ordered_accepted=True)
VALID_IN_NO_ORDER = Outcome(is_valid=True, accepted=False, ordered_accepted=False)
VALID_BROKE_OFF = Outcome(is_valid=True, accepted=None)
INVALID_ACCEPTED = Outcome(is_valid=False, accepted=True)
INVALID_REFUSED = Outcome(is_valid=False, accepted=False)
INVALID_BROKE_OFF = Outcome(is_valid=False, accepted=None)


def steps(*times: float) -> Steps:
    array = np.asarray(times, dtype=np.float32)
    return Steps(mask_us=array / 2, step_us=array, cpu_us=array)


def done(*outcomes: Outcome, again=None, times=(1.0,), compile_s=0.001, repeat_s=None) -> Record:
    walked = Walked(outcomes=outcomes, steps=steps(*times))
    return Record(
        name="x",
        status=Status.DONE,
        compiled=Compiled(compile_s=compile_s, first_mask_s=0.001, cpu_s=0.0005),
        repeat_s=repeat_s,
        first=walked,
        second=walked if again is None else Walked(outcomes=again, steps=steps(*times)),
    )


def refused(error: str = "ValueError: no") -> Record:
    return Record(name="x", status=Status.REFUSED, error=error)


@pytest.mark.parametrize(
    ("record", "expected", "as_written"),
    [
        (done(), Verdict.RIGHT, Verdict.RIGHT),
        (done(VALID_ACCEPTED, INVALID_REFUSED), Verdict.RIGHT, Verdict.RIGHT),
        (done(VALID_IN_ORDER, INVALID_REFUSED), Verdict.RIGHT, Verdict.UNDER),
        (done(VALID_ACCEPTED, VALID_REFUSED), Verdict.UNDER, Verdict.UNDER),
        (done(VALID_IN_NO_ORDER), Verdict.UNDER, Verdict.UNDER),
        (done(VALID_REFUSED, INVALID_ACCEPTED), Verdict.OVER, Verdict.OVER),
        (done(VALID_ACCEPTED, VALID_BROKE_OFF), Verdict.BROKE_OFF, Verdict.BROKE_OFF),
        (done(VALID_ACCEPTED, INVALID_BROKE_OFF), Verdict.BROKE_OFF, Verdict.BROKE_OFF),
        (done(VALID_ACCEPTED, again=(VALID_REFUSED,)), Verdict.UNSTEADY, Verdict.UNSTEADY),
        (refused(), Verdict.REFUSED, Verdict.REFUSED),
        (Record(name="x", status=Status.COMPILE_TIMEOUT), Verdict.TIMEOUT, Verdict.TIMEOUT),
        (Record(name="x", status=Status.CRASHED), Verdict.CRASHED, Verdict.CRASHED),
    ],
)
def test_a_schema_has_the_verdict_of_the_worst_that_happened(record, expected, as_written):
    assert verdict(record) is expected
    assert verdict(record, as_written=True) is as_written


def test_a_pass_that_was_not_finished_is_a_timeout_whatever_came_before():
    walked = Walked(outcomes=(INVALID_ACCEPTED,), steps=steps())
    assert verdict(Record(name="x", status=Status.WALK_TIMEOUT, first=walked)) is Verdict.TIMEOUT


def test_a_tally_counts_schemas_and_instances():
    counted = tally(
        [
            done(VALID_ACCEPTED),
            done(VALID_IN_ORDER),
            done(VALID_REFUSED, VALID_REFUSED, VALID_ACCEPTED),
            done(INVALID_ACCEPTED, INVALID_ACCEPTED, VALID_REFUSED),
            refused("ConstraintError: the schema is impossible: no JSON value is valid under it"),
        ]
    )
    assert counted.schemas == 5
    assert counted.right == 2
    assert counted.share == 40
    assert counted.right_as_written == 1
    assert counted.valid_instances_refused == 3
    assert counted.invalid_instances_accepted == 2
    assert counted.told_impossible == 1
    assert counted.verdicts[Verdict.REFUSED] == 1


def test_only_a_refusal_can_tell_that_a_schema_is_impossible():
    assert is_told_impossible(refused("ConstraintError: constraint.json_schema: is impossible: no JSON value"))
    assert not is_told_impossible(refused("UnsupportedConstraintError: $ref is outside the schema"))
    assert not is_told_impossible(done(VALID_ACCEPTED))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([7.0], (7, 7, 7, 7, 7)),
        ([2.0, 1.0], (1.5, 1, 2, 2, 2)),
        (range(100, 0, -1), (50.5, 50, 90, 99, 100)),
        (range(1, 201), (100.5, 100, 180, 198, 200)),
    ],
)
def test_percentiles_are_values_that_occur(values, expected):
    assert Distribution.of(list(values)).cells() == expected


def test_nothing_measured_is_not_a_number():
    empty = Distribution.of([])
    assert empty.count == 0
    assert all(math.isnan(cell) for cell in empty.cells())


def test_times_come_from_the_schemas_that_have_them():
    records = [done(times=(1.0, 2.0), repeat_s=0.00002), refused(), done(times=(3.0,), compile_s=0.004)]
    assert first_masks_ms(records) == pytest.approx([2, 5])
    assert first_masks_ms(records, cpu=True) == pytest.approx([0.5, 0.5])
    assert repeats_ms(records) == pytest.approx([0.02])
    assert steps_us(records, "first", "step_us").tolist() == [1, 2, 3]
    assert steps_us([refused()], "second", "mask_us").tolist() == []


def missed(targets):
    return {target.name for target in targets if not target.is_met}


def test_ours_has_to_be_right_more_often_than_llguidance():
    ours = [done(VALID_ACCEPTED)] * 96 + [refused()] * 4
    assert not missed(maskbench_targets({OURS: ours, PEER: [done(VALID_ACCEPTED)] * 95 + [refused()] * 5}))
    assert missed(maskbench_targets({OURS: ours, PEER: ours})) == {"maskbench right, more than llguidance"}
    assert missed(maskbench_targets({OURS: [*ours[:94], *[refused()] * 6]})) == {"maskbench right, %"}
    assert missed(maskbench_targets({OURS: [*ours, done(INVALID_ACCEPTED)]})) == {"maskbench invalid accepted"}


def test_the_suite_is_judged_by_the_engine_whatever_it_takes_formats_for():
    records = {"espalier-format-notes": [done(VALID_ACCEPTED)] * 87 + [refused()] * 13, PEER: [refused()] * 100}
    assert missed(suite_targets(records)) == {"suite right, %"}


def test_times_are_held_to_bounds_and_to_llguidance():
    fast = [done(VALID_ACCEPTED, times=(1.0, 2.0), repeat_s=0.00005)]
    slow = [done(VALID_ACCEPTED, times=(3.0, 25_000.0), compile_s=0.5, repeat_s=0.0005)]
    assert not missed(step_times("", {OURS: fast, PEER: slow}).targets)
    assert missed(step_times("", {OURS: slow, PEER: fast}).targets) == {
        "mask + advance largest, µs",
        "second pass mean, µs",
        "row of a known state p50, µs",
        "mask + advance mean, as llguidance, µs",
        "mask + advance p99, as llguidance, µs",
    }
    assert not missed(compile_times("", {OURS: fast, PEER: slow}).targets)
    assert len(missed(compile_times("", {OURS: slow, PEER: fast}).targets)) == 4


def test_a_table_shows_ours_over_the_schemas_that_llguidance_takes():
    ours = [done(times=(1.0,)), Record(name="y", status=Status.DONE, first=Walked(outcomes=(), steps=steps(9.0)))]
    rows = {row[0]: row for row in step_times("", {OURS: ours, PEER: [done(times=(2.0,))]}).rows}
    assert rows["espalier"][1] == 2
    assert rows["espalier, where llguidance compiles"][1:3] == (1, 1.0)


def test_the_slowest_schemas_are_those_of_the_longest_compilation_and_the_longest_step():
    records = [
        replace(done(times=times), name=name, compiled=Compiled(compile_s=0.0, first_mask_s=0.0, cpu_s=cpu_s))
        for name, times, cpu_s in [("a", (1.0, 2.0), 0.003), ("b", (4.0,), 0.001), ("c", (3.0,), 0.002), ("d", (), 9.0)]
    ]
    assert slowest("", [*records, refused()], 1).rows == [
        ("a", pytest.approx(3), pytest.approx(0.002), pytest.approx(0.003), 2),
        ("b", pytest.approx(1), pytest.approx(0.004), pytest.approx(0.004), 1),
    ]
