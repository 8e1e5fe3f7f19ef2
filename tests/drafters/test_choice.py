"""Costs of steps, chances of guesses, and the number of guesses that pays."""

from __future__ import annotations

import itertools
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoding.masks import MaskRow
from drafters.choice.acceptance import Acceptance, Kind, Openness
from drafters.choice.budget import best_count, best_nodes, path_chances
from drafters.choice.costs import MEASURED_ROWS, CostTable, load_or_measure

costs = st.dictionaries(st.integers(1, 64), st.floats(0.1, 100), min_size=1, max_size=6)


@given(costs, st.lists(st.tuples(st.integers(1, 64), st.floats(0.1, 100)), max_size=20))
def test_a_table_never_falls_whatever_was_measured(points, observations):
    table = CostTable(points)
    for rows, ms in observations:
        table.observe(rows, ms)
    assert all(a <= b + 1e-9 for a, b in itertools.pairwise(table.ms(rows) for rows in range(1, 100)))
    assert table.ms(1) > 0


def test_a_table_interpolates_and_goes_on_past_its_end():
    table = CostTable({1: 10.0, 4: 16.0, 8: 20.0})
    assert [table.ms(rows) for rows in (1, 2, 4, 6, 8, 12)] == [10.0, 12.0, 16.0, 18.0, 20.0, 24.0]
    assert CostTable({2: 6.0}).ms(4) == 12.0


def test_a_table_pools_neighbours_that_fall():
    table = CostTable({1: 10.0, 2: 14.0, 4: 12.0, 8: 30.0})
    assert [table.ms(rows) for rows in (1, 2, 4, 8)] == [10.0, 13.0, 13.0, 30.0]


def test_a_table_follows_what_it_observes_but_not_outliers():
    table = CostTable({1: 10.0, 4: 10.0, 8: 20.0})
    for _ in range(300):
        table.observe(6, 25.0)
        table.observe(1, 9.0)
    assert table.ms(6) == pytest.approx(25.0, rel=0.02)
    assert table.ms(1) == pytest.approx(9.0, rel=0.02)
    before = table.points
    table.observe(4, 5000.0)
    table.observe(100, 1.0)
    assert table.points == before


@pytest.mark.parametrize("points", [{}, {0: 1.0}, {1: 0.0}, {1: -2.0}])
def test_a_table_refuses_nonsense(points):
    with pytest.raises(ValueError, match="a cost table needs points"):
        CostTable(points)


def linear(all_rows):
    return {rows: 1.0 * rows for rows in all_rows}


def test_a_table_is_measured_once_per_key(tmp_path):
    measured = []

    def measure(all_rows):
        measured.extend(all_rows)
        return {rows: 10.0 + rows for rows in all_rows}

    path = tmp_path / "deep" / "costs.json"
    first = load_or_measure(path, {"model": "a"}, measure)
    assert measured == list(MEASURED_ROWS)
    assert load_or_measure(path, {"model": "a"}, measure).points == first.points
    assert measured == list(MEASURED_ROWS)
    load_or_measure(path, {"model": "b"}, measure)
    assert len(measured) == 2 * len(MEASURED_ROWS)
    assert [file.name for file in path.parent.iterdir()] == ["costs.json"]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"key": {"model": "a"}}', '{"key": {"model": "a"}, "points": {"1": 0}}']
)
def test_a_kept_table_that_is_broken_is_measured_again(tmp_path, text):
    path = tmp_path / "costs.json"
    path.write_text(text)
    assert load_or_measure(path, {"model": "a"}, linear).ms(2) == 2.0
    assert json.loads(path.read_text())["key"] == {"model": "a"}


def test_a_place_that_cannot_be_written_only_costs_the_measuring(tmp_path):
    (tmp_path / "file").write_text("")
    assert load_or_measure(tmp_path / "file" / "costs.json", {}, linear).ms(4) == 4.0


NGRAM = Kind.of("ngram", Openness.FREE, 0)


def test_a_rate_approaches_what_happens_and_forgets():
    acceptance, luck = Acceptance(half_life=50), random.Random(1)
    for _ in range(500):
        acceptance.learn(NGRAM, 1, accepted=luck.random() < 0.8)
    assert acceptance.chance(NGRAM, 2) == pytest.approx(0.8, abs=0.1)
    for _ in range(500):
        acceptance.learn(NGRAM, 1, accepted=luck.random() < 0.2)
    assert acceptance.chance(NGRAM, 2) == pytest.approx(0.2, abs=0.1)
    assert 0 < acceptance.chance(NGRAM, 1) < 1


def test_a_sequence_leans_the_rate_to_its_own_record():
    acceptance = Acceptance()
    for _ in range(100):
        acceptance.learn(NGRAM, 1, accepted=True)
        acceptance.learn(NGRAM, 2, accepted=False)
    assert acceptance.chance(NGRAM, 1) > 0.9
    assert acceptance.chance(NGRAM, 2) < 0.1
    assert acceptance.chance(NGRAM, 3) == pytest.approx(0.5, abs=0.1)
    acceptance.forget(2)
    assert acceptance.chance(NGRAM, 2) == acceptance.chance(NGRAM, 3)


def test_what_is_not_offered_is_tried_again_in_time():
    acceptance = Acceptance()
    for _ in range(200):
        acceptance.learn(NGRAM, 1, accepted=False)
    low = acceptance.chance(NGRAM, 1)
    for _ in range(2000):
        acceptance.fade("ngram")
    assert low < 0.05
    assert acceptance.chance(NGRAM, 1) > 0.4


def test_later_siblings_start_lower_and_learn_apart():
    acceptance = Acceptance()
    ranks = [acceptance.chance(Kind.of("ngram", Openness.FREE, rank), 1) for rank in range(6)]
    assert ranks == sorted(ranks, reverse=True)
    assert ranks[3] == ranks[5]


def test_openness_is_what_the_mask_leaves():
    rows = [None, *(MaskRow.from_ids(range(count), 1000) for count in (1, 8, 9, 256, 257))]
    names = [Openness.of(row).value for row in rows]
    assert names == ["free", "few", "few", "some", "some", "many"]


trees = st.lists(st.lists(st.tuples(st.integers(0, 5), st.floats(0.05, 0.95)), max_size=4), min_size=1, max_size=3)


def planted(drawn):
    """(parents, chance of each node) of one tree."""
    parents, own = [-1], [1.0]
    for parent, chance in drawn:
        parents.append(min(parent, len(parents) - 1))
        own.append(chance)
    return parents, path_chances(parents, own)


def connected_subsets(parents):
    nodes = range(1, len(parents))
    for size in range(len(parents)):
        for chosen in itertools.combinations(nodes, size):
            if all(parents[node] in (0, *chosen) for node in chosen):
                yield chosen


@given(trees, st.lists(st.floats(0.1, 3), min_size=20, max_size=20), st.integers(0, 3))
def test_the_best_nodes_are_the_best_of_all_subtrees(drawn, increments, other_rows):
    table = [10 + sum(increments[:rows]) for rows in range(len(increments) + 1)]
    parents, chances = zip(*map(planted, drawn), strict=True)
    kept = best_nodes(chances, table.__getitem__, other_rows=other_rows)

    def rate(chosen):
        count = sum(map(len, chosen))
        gained = sum(chances[tree][node] for tree, nodes in enumerate(chosen) for node in nodes)
        beside = table[len(drawn) + other_rows] - table[len(drawn)]
        return (len(drawn) + gained) / (table[len(drawn) + other_rows + count] - beside)

    best = max(rate(choice) for choice in itertools.product(*map(connected_subsets, parents)))
    assert rate([nodes[1:] for nodes in kept]) == pytest.approx(best)
    for row, nodes in zip(parents, kept, strict=True):
        assert all(row[node] in nodes for node in nodes[1:])


def test_under_load_guesses_stop_paying_and_come_back():
    chances = [0.6, 0.36, 0.2, 0.1]
    flat = best_count(chances, lambda rows: 20 + 0.2 * rows, sequences=1)
    steep = best_count(chances, lambda rows: 20.0 * rows, sequences=1)
    assert flat == 4
    assert steep == 0
