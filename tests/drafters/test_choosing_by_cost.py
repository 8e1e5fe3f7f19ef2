"""The chooser behind `auto`, on a made-up target, table and clock."""

from __future__ import annotations

import itertools

import pytest

from decoding.masks import MaskRow
from drafters.choice.by_cost import CostChooser
from drafters.choice.costs import CostTable
from drafters.choice.trial import EARLY_EXPLORATION, EXPLORATION, PATIENCE, Place, Trials
from drafters.choosing import FixedChooser
from drafters.composition import Composition
from drafters.protocol import DraftContext

FLAT = CostTable({1: 20.0, 64: 26.0})
STEEP = {1: 20.0, 64: 64 * 20.0}


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Guesses:
    """Guesses what comes next, right every so often, and takes its time on the clock."""

    def __init__(self, name, clock, *, right, ms=0.01, length=8):
        self.name, self.clock, self.right, self.ms, self.length = name, clock, right, ms, length
        self.asked = 0
        self.random = itertools.count()

    def grow(self, trees):
        self.asked += 1
        self.clock.now += self.ms / 1e3
        for tree in trees:
            for node in tree.tips(self.name):
                first = len(tree.context.tokens) + len(tree.path(node))
                run = [at if self.is_right() else 10**6 for at in range(first, first + self.length)]
                tree.extend(node, run, self.name)

    def is_right(self):
        return (next(self.random) * 7919 % 1000) < 1000 * self.right

    def observe(self, sequence_id, tokens):
        pass

    def forget(self, sequence_id):
        pass


class Anything:
    """A matcher that allows all, or one token."""

    is_finished = False

    def __init__(self, legal=range(1000)):
        self.row = MaskRow.from_ids(legal, 2_000_000)

    def mask(self):
        return self.row

    def fork(self):
        return self

    def advance(self, token):
        pass

    def rollback(self, count):
        pass


class Served:
    """Sequences whose target says its own position, step by step, with the cost of ``table`` for each step."""

    def __init__(self, sources, table, clock):
        self.clock, self.table = clock, table
        self.sources = sources
        self.chooser = CostChooser([source.name for source in sources], CostTable(table.points))
        self.drafter = Composition(sources, self.chooser, clock)
        self.tokens = {}
        self.rows = []

    def step(self, batch=1, *, mix=None, limit=9, chunk=0):
        for sequence_id in range(batch):
            self.tokens.setdefault(sequence_id, [0])
        contexts = [
            DraftContext(
                sequence_id=sequence_id, tokens=self.tokens[sequence_id], num_prompt=1, matcher=None, limit=limit,
                mix=mix,
            )
            for sequence_id in range(batch)
        ]  # fmt: skip
        self.chooser.begin(chunk)
        drafts = self.drafter.propose(contexts)
        rows = chunk + sum(len(draft.tree) for draft in drafts)
        self.clock.now += self.table.ms(rows) / 1e3
        for sequence_id, draft in enumerate(drafts):
            tokens = self.tokens[sequence_id]
            node, gained = 0, []
            while node is not None:
                gained.append(len(tokens) + len(gained))
                below = [n for n in range(1, len(draft.tree)) if draft.tree.parents[n] == node]
                node = next((n for n in below if draft.tree.tokens[n] == gained[-1]), None)
            tokens += gained
            self.drafter.observe(sequence_id, gained, len(gained) - 1)
        self.chooser.end(rows, self.table.ms(rows))
        self.rows.append(rows)
        return drafts

    def run(self, steps, batch=1, **options):
        """Tokens per millisecond."""
        start, known = self.clock.now, sum(map(len, self.tokens.values()))
        for _ in range(steps):
            self.step(batch, **options)
        return (sum(map(len, self.tokens.values())) - known) / (1e3 * (self.clock.now - start))


def served(table=FLAT, **sources):
    clock = Clock()
    return Served([Guesses(name, clock, **options) for name, options in sources.items()], table, clock)


def test_good_guesses_are_all_computed_and_bad_ones_are_not():
    good = served(good={"right": 1.0})
    good.run(60)
    assert good.rows[-1] == 9
    bad = served(CostTable({1: 20.0, 64: 83.0}), bad={"right": 0.0})
    bad.run(100)
    assert sum(bad.rows[-20:]) <= 24


@pytest.mark.parametrize("right", [0.0, 0.3, 0.7, 0.95])
@pytest.mark.parametrize("batch", [1, 4, 16])
@pytest.mark.parametrize("points", [FLAT.points, {1: 22.0, 8: 35.0, 16: 44.0, 32: 58.0, 64: 100.0}, STEEP])
def test_neither_worse_than_none_nor_than_the_fixed_choice(right, batch, points):
    table = CostTable(points)
    chosen = served(table, some={"right": right})
    chosen.run(60, batch)
    by_cost = chosen.run(100, batch)
    none = served(table, some={"right": right}).run(100, batch, mix=())
    named = served(table, some={"right": right}).run(100, batch, mix=("some",))
    assert by_cost >= 0.97 * none
    assert by_cost >= 0.95 * named


def test_under_load_the_budget_falls_to_zero_and_comes_back_by_itself():
    table = CostTable({1: 20.0, 8: 24.0, 16: 300.0, 64: 1500.0})
    some = served(table, some={"right": 0.7})
    some.run(100)
    assert some.chooser.state().budget > 2
    some.run(100, 16)
    assert some.chooser.state().budget == 0
    assert some.rows[-1] == 16
    some.run(3)
    assert some.chooser.state().budget > 2


def test_a_drafter_that_takes_longer_than_it_saves_is_asked_now_and_then():
    slow = served(slow={"right": 0.6, "ms": 80.0})
    slow.run(50)
    (source,) = slow.sources
    before, start = source.asked, slow.clock.now
    slow.run(4000)
    asked = source.asked - before
    assert asked > 4
    assert asked * 0.080 < 2.5 * EXPLORATION * (slow.clock.now - start)


def test_a_drafter_that_becomes_good_is_taken_up_again():
    late = served(late={"right": 0.0, "ms": 10.0})
    late.run(300)
    (source,) = late.sources
    source.right = 1.0
    late.run(4000)
    assert late.rows[-1] == 9
    asked = source.asked
    late.run(20)
    assert source.asked == asked + 20


def test_the_better_of_two_drafters_gets_the_rows():
    both = served(worse={"right": 0.1, "length": 1, "ms": 15.0}, better={"right": 0.95, "ms": 1.0})
    both.run(300)
    drafts = [both.step()[0] for _ in range(30)]
    shares = [draft.sources.count("better") for draft in drafts]
    assert sum(shares) > 5 * sum(draft.sources.count("worse") for draft in drafts)


def test_beside_a_chunk_guesses_cost_what_they_add():
    some = served(CostTable({1: 20.0, 64: 64 * 20.0}), some={"right": 0.5})
    some.run(100)
    some.run(1, chunk=200)
    assert some.rows[-1] - 200 <= 2


def test_named_drafters_get_all_their_guesses_and_are_learnt_from():
    some = served(CostTable(STEEP), some={"right": 0.9}, other={"right": 0.9})
    some.run(40, mix=("some",))
    assert set(some.rows) == {9}
    assert some.chooser.state().budget == 0
    assert set(some.chooser.state().acceptance) == {"some"}
    assert some.chooser.state().acceptance["some"] == pytest.approx(0.9, abs=0.08)


def test_what_was_pruned_is_learnt_from_too():
    """After an accepted node the target's token is known, whether a guess was computed or not."""
    some = served(CostTable(STEEP), some={"right": 0.8})
    some.run(200)
    assert some.rows[-1] <= 2
    assert some.chooser.state().acceptance["some"] == pytest.approx(0.8, abs=0.1)


def test_requests_with_and_without_a_constraint_are_told_apart():
    clock = Clock()
    source = Guesses("some", clock, right=1.0, ms=30.0)
    chooser = CostChooser(["some"], FLAT)
    drafter = Composition([source], chooser, clock)
    for step in range(200):
        contexts = [
            DraftContext(
                sequence_id=index, tokens=[*range(step + 1)], num_prompt=1, matcher=matcher, limit=9
            )
            for index, matcher in enumerate((None, Anything()))
        ]  # fmt: skip
        chooser.begin(0)
        drafter.propose(contexts)
        drafter.observe(0, [-1], 0)
        drafter.observe(1, list(range(step + 1, step + 6)), 4)
        chooser.end(2, 20.0)
    free, constrained = (choice.mix for choice in chooser.choose(contexts))
    assert (free, constrained) == ((), ("some",))


def test_a_sequence_that_ended_leaves_nothing_behind():
    some = served(some={"right": 0.5})
    some.run(5, 4)
    for sequence_id in range(4):
        some.drafter.forget(sequence_id)
    assert not some.chooser._grown
    assert not some.chooser._acceptance._own


def test_limits_hold_and_a_request_without_guesses_gets_none():
    some = served(some={"right": 1.0})
    assert some.run(20, limit=1) > 0
    assert set(some.rows) == {1}
    some.run(20, limit=4)
    assert max(some.rows) == 4


def test_a_fixed_choice_is_the_same_whatever_was_seen():
    clock = Clock()
    source = Guesses("some", clock, right=0.0, ms=100.0)
    chooser = FixedChooser(["some"], rows=32)
    drafter = Composition([source], chooser, clock)
    context = DraftContext(sequence_id=1, tokens=[0], num_prompt=1, matcher=None, limit=5)
    for _ in range(20):
        (draft,) = drafter.propose([context])
        drafter.observe(1, [7], 0)
        chooser.end(5, 1000.0)
        assert len(draft.tree) == 5
    assert chooser.state().budget == 4


def test_a_trial_is_repeated_as_often_as_its_share_of_time_allows():
    trials, place = Trials(), Place("some", is_constrained=False, load=1)
    for _ in range(PATIENCE):
        assert trials.asks(place, 1)
        trials.learn(place, saved=0.0, cost=5.0)
        assert not trials.asks(place, 1)
        trials.advance(5.0 / EARLY_EXPLORATION)
    asked = 0
    for _ in range(1000):
        trials.advance(10.0)
        asked += trials.asks(place, 1)
    assert asked == 20
    assert trials.asks(Place("some", is_constrained=True, load=1), 1)
