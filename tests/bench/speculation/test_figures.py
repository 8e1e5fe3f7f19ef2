"""The benchmark's own arithmetic, on runs made by hand."""

from __future__ import annotations

import pytest

from tests.bench.speculation.figures import cell, difference, first_difference, targets
from tests.bench.speculation.runs import STAGES, Reference, Run
from tests.bench.speculation.workloads import COUNT, workloads

REFERENCE = Reference(texts=((1, 2, 3, 4),), gaps=((9.0, 8.0, 0.25, 7.0),))


def run(*, seconds=1.0, tokens=40, steps=10, rows=50, sequence_steps=10, text=(1, 2, 3, 4), draft=0.02, mask=0.03):
    stages = dict.fromkeys(STAGES, 0.1) | {"draft": draft, "mask": mask}
    return Run(
        tokens=tokens, seconds=seconds, steps=steps, rows=rows, sequence_steps=sequence_steps, stages=stages,
        texts=(text,),
    )  # fmt: skip


def cells(**seconds):
    none = [run(seconds=2.0), run(seconds=4.0)]
    return {
        name: cell([run(seconds=share * other.seconds) for other in none], none, [REFERENCE] * 2)
        for name, share in {"none": 1.0, **seconds}.items()
    }


def test_a_speed_up_is_taken_round_by_round():
    found = cell([run(seconds=1.0), run(seconds=4.0)], [run(seconds=2.0), run(seconds=6.0)], [REFERENCE] * 2)
    assert found.speed_up.rounds == (2.0, 1.5)
    assert found.speed_up.median == 1.75
    assert found.tokens_per_s.rounds == (40.0, 10.0)


def test_tokens_and_rows_are_per_sequence_and_step_and_stages_per_step():
    found = cell([run(steps=10, sequence_steps=20, tokens=60, rows=80, seconds=0.5)], [run()], [REFERENCE])
    assert (found.tokens_per_forward, found.rows_per_forward) == (3.0, 4.0)
    assert found.stage_ms["draft"] == pytest.approx(2.0)
    assert found.overhead == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("text", "at"),
    [((1, 2, 3, 4), None), ((1, 2, 5, 4), 2), ((1, 2), 2), ((1, 2, 3, 4, 5), 3), ((), 0), ((7, 2, 3, 4), 0)],
)
def test_where_texts_part(text, at):
    assert first_difference(text, (1, 2, 3, 4)) == at


def test_texts_that_differ_are_counted_with_their_widest_gap():
    found = difference([((1, 2, 5),), ((1, 2, 3, 4),), ((1, 9),)], [REFERENCE] * 3)
    assert (found.texts, found.widest_gap) == (2, 8.0)
    assert difference([((1, 2, 3, 4),)], [REFERENCE]).widest_gap == 0.0


def test_targets_name_the_best_drafter_and_tell_misses():
    found = targets({("extraction, compact", 1): cells(**{"forced+ngram": 0.5, "ngram": 0.8, "auto": 0.6})})
    by_name = {target.name: target for target in found}
    assert by_name["extraction, compact, batch 1: forced+ngram / none"].value == pytest.approx(2.0)
    assert by_name["extraction, compact, batch 1: auto / none"].is_met
    against_best = by_name["extraction, compact, batch 1: auto / forced+ngram"]
    assert against_best.value == pytest.approx(0.5 / 0.6)
    assert not against_best.is_met


def test_the_speed_of_forced_text_is_asked_of_extraction_alone_and_of_one_stream():
    drafters = cells(**{"forced+ngram": 1.0})
    for where in (("chat", 1), ("extraction, compact", 4)):
        assert not [target for target in targets({where: drafters}) if "forced+ngram / none" in target.name]


def test_overhead_is_that_of_drafters_without_a_model():
    slow = cell([run(draft=0.5)], [run()], [REFERENCE])
    (target,) = targets({("chat", 1): {"none": slow, "model": slow, "ngram": cells(ngram=1.0)["ngram"]}})
    assert target.is_met
    (target,) = targets({("chat", 1): {"none": slow, "ngram": slow}})
    assert not target.is_met


def test_no_two_prompts_of_a_workload_are_alike():
    for workload in workloads():
        assert len(set(workload.prompts)) == COUNT
