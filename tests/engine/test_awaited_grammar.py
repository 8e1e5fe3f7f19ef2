"""A constraint that arrives after its request: the prompt is computed meanwhile, and nothing else changes."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.errors import CapacityError
from decoding.finish import FinishReason
from engine.kv_cache import BLOCK_SIZE


class Promise:
    """`engine.request.AwaitedGrammar` that is kept when the test says so, or at a given question."""

    def __init__(self, grammar, at_question: int | None = None) -> None:
        self.grammar, self.at_question, self.is_kept = grammar, at_question, False

    def arrived(self):
        if self.at_question is not None:
            self.at_question -= 1
            self.is_kept = self.at_question < 0
        return self.grammar if self.is_kept else None


def awaiting(request, at_question=None):
    """The same request with its grammar to come."""
    promise = Promise(request.grammar, at_question)
    return dataclasses.replace(request, grammar=None, awaited=promise), promise


def steps(engine, count, results=None):
    """So many steps; block accounting is checked after each."""
    events = []
    for _ in range(count):
        events += engine.step()
        engine._scheduler.pool.check()
    return events


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_output_does_not_depend_on_when_constraints_arrive(toy, data):
    """Whatever the moment, the chunks, the cache, the places and the memory; with neighbours that wait for nothing."""
    requests = [
        toy.request(
            f"r{index}",
            data.draw(st.integers(0, 2)),
            data.draw(st.sampled_from([1, 2, 15, 16, 17, 33, 70])),
            params={"max_tokens": data.draw(st.integers(4, 12)), "seed": data.draw(st.integers(0, 2))},
            n=data.draw(st.sampled_from([1, 1, 2])),
            priority=data.draw(st.sampled_from([0, 0, 1])),
            grammar=toy.Grammar() if data.draw(st.booleans()) else None,
        )
        for index in range(data.draw(st.integers(1, 6)))
    ]
    engine = toy.engine(
        max_batch_tokens=data.draw(st.sampled_from([4, 7, 64])),
        max_running=data.draw(st.sampled_from([1, 2, 4])),
        kv_cache_tokens=data.draw(st.sampled_from([96, 128, 2048])),
        chunked_prefill=data.draw(st.booleans()),
        prefix_cache=data.draw(st.booleans()),
        watermark=data.draw(st.sampled_from([0.0, 0.2])),
    )
    for request in requests:
        is_late = request.grammar is not None and data.draw(st.booleans())
        engine.submit(awaiting(request, data.draw(st.integers(0, 40)))[0] if is_late else request)
    results = toy.run(engine)
    for request in requests:
        for index in range(request.n):
            assert results[request.request_id, index].tokens == toy.alone(request, index)


def test_the_prompt_is_computed_and_one_step_after_the_arrival_the_first_token_is_there(toy):
    """In steps, which is what time to first token is made of: compiling first costs the prompt's steps on top."""
    request = toy.request("r", 1, 60, grammar=toy.Grammar())
    compiled_first = toy.engine(max_batch_tokens=16)
    compiled_first.submit(request)
    before = 1
    while not compiled_first.step():
        before += 1
    engine = toy.engine(max_batch_tokens=16)
    late, promise = awaiting(request)
    engine.submit(late)
    assert steps(engine, 10) == []
    assert engine._live["r"][0].num_computed == 59
    promise.is_kept = True
    (event,) = engine.step()
    assert (before, event.tokens) == (4, tuple(toy.alone(request)[:1]))


def test_a_constraint_that_arrives_within_the_last_step_of_the_prompt_costs_no_step(toy):
    request = toy.request("r", 1, 30, grammar=toy.Grammar())
    late, _ = awaiting(request, at_question=1)  # not when it is admitted, but when its row is there
    engine = toy.engine()
    engine.submit(late)
    (event,) = engine.step()
    assert event.tokens == tuple(toy.alone(request)[:1])


def test_who_waits_holds_nobody_up(toy):
    """Neither by places, nor by the budget of tokens, nor by forward passes."""
    engine = toy.engine(max_running=2, max_batch_tokens=32)
    promises = []
    for index in range(6):
        late, promise = awaiting(toy.request(f"late{index}", index, 20, grammar=toy.Grammar()))
        engine.submit(late)
        promises.append(promise)
    steps(engine, 8)
    assert engine.stats().running == 6
    assert (len(engine._scheduler.running), len(engine._scheduler.parked)) == (0, 6)
    forwards = engine._runner.model.forwards
    assert engine.step() == []
    assert engine._runner.model.forwards == forwards
    free = toy.request("free", 9, 20, params={"max_tokens": 5})
    engine.submit(free)
    events = steps(engine, 6)
    assert [token for event in events for token in event.tokens] == toy.alone(free)
    for promise in promises:
        promise.is_kept = True
    results = toy.run(engine)
    assert len(results) == 6


def test_memory_of_those_who_wait_goes_to_those_who_run_and_is_computed_again_once(toy):
    engine = toy.engine(kv_cache_tokens=6 * BLOCK_SIZE, watermark=0.0, prefix_cache=False)
    request = toy.request("late", 1, 3 * BLOCK_SIZE, grammar=toy.Grammar())
    late, promise = awaiting(request)
    engine.submit(late)
    steps(engine, 3)
    assert engine.stats().blocks.used == 3
    free = toy.request("free", 2, 4 * BLOCK_SIZE, params={"max_tokens": 4})
    engine.submit(free)
    (event,) = engine.step()
    assert event.request_id == "free"
    assert (engine.stats().waiting, engine.stats().totals.preemptions) == (1, 1)
    results = {}
    toy.collect(results, [event, *steps(engine, 12)])
    assert results["free", 0].tokens == toy.alone(free)
    assert engine.stats().blocks.used == 0  # it waits without blocks until it can use them
    promise.is_kept = True
    assert toy.run(engine)["late", 0].tokens == toy.alone(request)
    assert engine.stats().totals.preemptions == 1


def test_memory_of_a_higher_priority_that_waits_is_left_alone(toy):
    engine = toy.engine(kv_cache_tokens=6 * BLOCK_SIZE, watermark=0.0)
    late, promise = awaiting(toy.request("late", 1, 3 * BLOCK_SIZE, grammar=toy.Grammar(), priority=1))
    engine.submit(late)
    steps(engine, 3)
    engine.submit(toy.request("free", 2, 4 * BLOCK_SIZE, params={"max_tokens": 4}))
    assert steps(engine, 3) == []
    promise.is_kept = True
    assert len(toy.run(engine)) == 2


def test_its_prompt_is_in_the_prefix_cache_while_it_waits(toy):
    engine = toy.engine()
    late, _ = awaiting(toy.request("late", 1, 40, grammar=toy.Grammar()))
    engine.submit(late)
    steps(engine, 3)
    other = toy.request("other", 1, 40, params={"max_tokens": 3})
    engine.submit(other)
    results = {}
    toy.collect(results, steps(engine, 4))
    assert results["other", 0].finish.usage.cached == 2 * BLOCK_SIZE
    assert results["other", 0].tokens == toy.alone(other)


@pytest.mark.parametrize("num_steps", [0, 1, 2, 5])
def test_leaving_before_the_constraint_frees_everything(toy, num_steps):
    engine = toy.engine(max_batch_tokens=16)
    late, promise = awaiting(toy.request("late", 1, 40, grammar=toy.Grammar(), n=2))
    engine.submit(late)
    steps(engine, num_steps)
    events = engine.abort("late")
    assert [(event.finish.reason, event.finish.constraint_complete) for event in events] == [
        (FinishReason.CANCELLED, False)
    ] * 2
    assert not engine.has_work
    assert engine.stats().blocks.used == 0
    promise.is_kept = True
    assert engine.step() == []


def test_the_queue_is_bounded_as_ever(toy):
    engine = toy.engine(max_running=1, max_waiting_requests=2)
    for index in range(2):
        engine.submit(awaiting(toy.request(f"late{index}", 1, 5, grammar=toy.Grammar()))[0])
    with pytest.raises(CapacityError, match="waiting"):
        engine.submit(awaiting(toy.request("more", 1, 5, grammar=toy.Grammar()))[0])
