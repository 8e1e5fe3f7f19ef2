from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.errors import CapacityError, InvalidRequestError
from decoding.finish import FinishReason
from decoding.params import SamplingParams
from decoding.tree import DraftTree
from drafters.protocol import Draft
from engine.request import GenerationRequest

PARAMS = st.sampled_from(
    [
        {"temperature": 0.0},
        {"temperature": 1.0},
        {"temperature": 0.7, "top_p": 0.9, "logprobs": 2},
        {"temperature": 1.0, "repetition_penalty": 1.3, "frequency_penalty": 0.4},
        {"temperature": 0.9, "min_tokens": 4, "min_p": 0.02, "bad_words": ((5,), (6, 7))},
    ]
)


@st.composite
def batches(draw, toy):
    requests = []
    for index in range(draw(st.integers(1, 5))):
        request = toy.request(
            f"r{index}",
            draw(st.integers(0, 3)),
            draw(st.sampled_from([1, 5, 15, 16, 17, 33, 70])),
            params=draw(PARAMS) | {"max_tokens": draw(st.integers(4, 14)), "seed": draw(st.integers(0, 2))},
            n=draw(st.sampled_from([1, 1, 2, 3])),
            priority=draw(st.sampled_from([0, 0, 1])),
            grammar=toy.Grammar() if draw(st.booleans()) else None,
            stop=toy.StopAt(3, 4) if draw(st.booleans()) else None,
        )
        requests.append(request)
    return requests


def expected(toy, requests):
    return {
        (request.request_id, index): toy.alone(request, index) for request in requests for index in range(request.n)
    }


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_output_does_not_depend_on_batch_chunks_cache_or_preemption(toy, data):
    """alone == batched; whole == chunked; uninterrupted == preempted; cache hit == miss."""
    requests = data.draw(batches(toy))
    engine = toy.engine(
        max_batch_tokens=data.draw(st.sampled_from([4, 7, 64])),
        max_running=data.draw(st.sampled_from([1, 2, 4])),
        kv_cache_tokens=data.draw(st.sampled_from([96, 128, 2048])),
        chunked_prefill=data.draw(st.booleans()),
        prefix_cache=data.draw(st.booleans()),
        watermark=data.draw(st.sampled_from([0.0, 0.2])),
    )
    for request in requests:
        engine.submit(request)
    results = toy.run(engine)
    assert {key: result.tokens for key, result in results.items()} == expected(toy, requests)


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_a_hostile_drafter_changes_no_output(toy, data):
    requests = data.draw(batches(toy))
    wanted = expected(toy, requests)
    answers = {request.prompt: wanted[request.request_id, 0] for request in requests}
    engine = toy.engine(
        drafter=toy.RandomDrafter(data.draw(st.integers(0, 99)), answers),
        draft_tokens=data.draw(st.integers(1, 8)),
        max_batch_tokens=data.draw(st.sampled_from([8, 64])),
        max_running=4,
        kv_cache_tokens=data.draw(st.sampled_from([128, 2048])),
    )
    for request in requests:
        engine.submit(request)
    results = toy.run(engine)
    assert {key: result.tokens for key, result in results.items()} == wanted


def test_good_drafts_save_forward_passes_and_are_counted(toy):
    request = toy.request("r", 1, 20, params={"max_tokens": 30, "ignore_eos": True})
    answer = toy.alone(request)
    model = toy.Model()
    engine = toy.engine(drafter=toy.RandomDrafter(0, {request.prompt: answer}), draft_tokens=7, model=model)
    engine.submit(request)
    result = toy.run(engine)["r", 0]
    assert result.tokens == answer
    assert model.forwards < 20
    usage = result.finish.usage
    assert usage.completion == 30
    assert 10 < usage.accepted < usage.drafted
    assert engine.stats().totals.drafted.accepted == usage.accepted


def chain(tokens):
    return Draft(tree=DraftTree.chain(tokens))


class BrokenDrafter:
    def __init__(self, behaviour):
        self.behaviour = behaviour

    def propose(self, contexts):
        return self.behaviour(contexts)

    def observe(self, sequence_id, tokens, accepted):
        raise RuntimeError("observe")

    def forget(self, sequence_id):
        raise RuntimeError("forget")


@pytest.mark.parametrize("case", ["raises", "too few", "wrong root", "too large", "outside the vocabulary"])
def test_a_broken_drafter_costs_guesses_and_nothing_else(toy, case):
    def behaviour(contexts):
        root = contexts[0].tokens[-1]
        trees = {
            "too few": [],
            "wrong root": [chain([(root + 1) % toy.VOCAB, 3]) for _ in contexts],
            "too large": [chain([context.tokens[-1], *[3] * 50]) for context in contexts],
            "outside the vocabulary": [chain([context.tokens[-1], toy.VOCAB + 5]) for context in contexts],
        }
        if case == "raises":
            raise RuntimeError("no")
        return trees[case]

    request = toy.request("r", 1, 20)
    engine = toy.engine(drafter=BrokenDrafter(behaviour), draft_tokens=5)
    engine.submit(request)
    assert toy.run(engine)["r", 0].tokens == toy.alone(request)


def test_samples_share_the_prompts_blocks_until_they_write(toy):
    request = toy.request("r", 2, 40, n=4, params={"max_tokens": 3, "ignore_eos": True})
    engine = toy.engine()
    engine.submit(request)
    events = engine.step()
    assert sorted(event.sample_index for event in events) == [0, 1, 2, 3]
    assert engine.stats().blocks.used == 3  # 40 tokens, once
    engine.step()
    assert engine.stats().blocks.used == 2 + 4  # the third block was copied for three of the four
    assert len(toy.run(engine)) == 4


def test_the_prefix_cache_serves_its_own_tenant_only(toy):
    engine = toy.engine()
    usages = []
    for tenant in ("a", "a", "b"):
        engine.submit(toy.request("r", 3, 50, tenant=tenant))
        usages.append(toy.run(engine)["r", 0].finish.usage.cached)
    assert usages == [0, 48, 0]
    totals = engine.stats().totals
    assert (totals.prefix_queried_tokens, totals.prefix_hit_tokens) == (150, 48)


def test_outputs_enter_the_prefix_cache_too(toy):
    engine = toy.engine()
    first = toy.request("r", 3, 20, params={"max_tokens": 30, "ignore_eos": True})
    engine.submit(first)
    output = toy.run(engine)["r", 0].tokens
    engine.submit(GenerationRequest(request_id="s", prompt=first.prompt + tuple(output), params=first.params))
    assert toy.run(engine)["s", 0].finish.usage.cached == 48


def test_the_cache_gives_way_when_memory_is_needed(toy):
    engine = toy.engine(kv_cache_tokens=160)
    for seed in range(8):
        engine.submit(toy.request("r", seed, 60))
        toy.run(engine)
    counts = engine.stats().blocks
    assert counts.used == 0
    assert counts.free + counts.cached == counts.total == 10


def test_preemption_happens_makes_progress_and_changes_nothing(toy):
    requests = [
        toy.request(f"r{index}", index, 30, params={"max_tokens": 60, "ignore_eos": True}) for index in range(4)
    ]
    engine = toy.engine(kv_cache_tokens=160, watermark=0.0)
    for request in requests:
        engine.submit(request)
    results = toy.run(engine)
    assert engine.stats().totals.preemptions > 0
    assert results["r0", 0].finish.usage.preemptions == 0, "the oldest is never preempted"
    assert {key: result.tokens for key, result in results.items()} == expected(toy, requests)


def test_a_higher_priority_leaves_the_queue_first(toy):
    engine = toy.engine(max_running=1)
    for name, priority in (("low", 0), ("high", 5), ("mid", 1)):
        engine.submit(toy.request(name, 1, 5, priority=priority))
    order = []
    while engine.has_work:
        order += [event.request_id for event in engine.step() if event.finish]
    assert order == ["high", "mid", "low"]


def test_guesses_leave_room_for_the_prompts_of_others(toy):
    """Nine decodes that could fill the budget with guesses, and a prompt that comes later."""
    engine = toy.engine(drafter=toy.RandomDrafter(1), draft_tokens=8, max_batch_tokens=64)
    for index in range(9):
        engine.submit(toy.request(f"d{index}", index, 3, params={"max_tokens": 400, "ignore_eos": True}))
    for _ in range(4):
        engine.step()
    engine.submit(toy.request("late", 77, 60, params={"max_tokens": 2, "ignore_eos": True}))
    events = [event for _ in range(4) for event in engine.step()]
    assert any(event.request_id == "late" for event in events)


def test_decodes_go_on_while_a_long_prompt_is_chunked_within_the_budget(toy):
    model = toy.Model()
    engine = toy.engine(max_batch_tokens=32, model=model)
    engine.submit(toy.request("running", 1, 4, params={"max_tokens": 40, "ignore_eos": True}))
    engine.step()
    engine.submit(toy.request("long", 2, 300))
    for _ in range(9):
        assert engine.step()[0].request_id == "running"
    assert max(model.tokens_per_forward) <= 32
    toy.run(engine)


def test_unchunked_prompts_are_computed_in_one_step(toy):
    model = toy.Model()
    engine = toy.engine(max_batch_tokens=32, chunked_prefill=False, model=model)
    engine.submit(toy.request("long", 2, 300))
    engine.submit(toy.request("other", 3, 200))
    toy.run(engine)
    assert model.tokens_per_forward[0] == 300
    assert 200 <= model.tokens_per_forward[1] <= 201


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_aborting_at_any_moment_frees_everything_and_disturbs_nobody(toy, data):
    requests = data.draw(batches(toy))
    wanted = expected(toy, requests)
    engine = toy.engine(kv_cache_tokens=128, max_batch_tokens=16, max_running=3)
    for request in requests:
        engine.submit(request)
    victim = data.draw(st.sampled_from(requests)).request_id
    results: dict = {}
    for _ in range(data.draw(st.integers(0, 6))):
        toy.collect(results, engine.step())
        engine._scheduler.pool.check()
    ended = {key for key, result in results.items() if result.finish}
    cancelled = engine.abort(victim)
    toy.collect(results, cancelled)
    assert all(event.finish.reason is FinishReason.CANCELLED for event in cancelled)
    assert engine.abort(victim) == []
    toy.run(engine, results)
    for key, tokens in wanted.items():
        if key[0] != victim or key in ended:
            assert results[key].tokens == tokens
        else:
            assert results[key].tokens == tokens[: len(results[key].tokens)]


def test_a_failing_matcher_fails_its_own_request_only(toy):
    good, bad = toy.request("good", 1, 9, n=2), toy.request("bad", 2, 9, n=2, grammar=toy.Grammar(fail_after=2))
    engine = toy.engine()
    engine.submit(good)
    engine.submit(bad)
    results = toy.run(engine)
    for index in (0, 1):
        assert results["bad", index].finish.reason is FinishReason.ERROR
        assert "bound of work" in results["bad", index].finish.message
        assert results["good", index].tokens == toy.alone(good, index)


def test_logits_that_are_not_finite_fail_their_own_request_only(toy):
    class Sick(toy.Model):
        def logits(self, hidden_RE):
            logits = super().logits(hidden_RE)
            if len(logits) == 2:  # the step in which both prompts end
                logits[0] = float("nan")
            return logits

    good = toy.request("good", 1, 9)
    engine = toy.engine(model=Sick())
    engine.submit(toy.request("bad", 2, 9))
    engine.submit(good)
    results = toy.run(engine)
    assert results["bad", 0].finish.reason is FinishReason.ERROR
    assert "not finite" in results["bad", 0].finish.message
    assert results["good", 0].tokens == toy.alone(good)


def test_a_matcher_with_a_bug_fails_its_own_request_only(toy):
    class Buggy(toy.Grammar):
        def matcher(self):
            matcher = super().matcher()
            matcher.mask = lambda: 1 / 0
            return matcher

    good = toy.request("good", 1, 9)
    engine = toy.engine()
    engine.submit(good)
    engine.submit(toy.request("bad", 2, 9, grammar=Buggy()))
    results = toy.run(engine)
    assert results["bad", 0].finish.reason is FinishReason.ERROR
    assert "ZeroDivision" not in results["bad", 0].finish.message
    assert results["good", 0].tokens == toy.alone(good)


def test_finish_reasons(toy):
    def finish(**fields):
        engine = toy.engine()
        request = toy.request("r", 4, 6, **fields)
        engine.submit(request)
        result = toy.run(engine)["r", 0]
        return result.finish, result.tokens

    end, tokens = finish(params={"max_tokens": 5, "ignore_eos": True})
    assert (end.reason, len(tokens), end.constraint_complete) == (FinishReason.LENGTH, 5, None)

    end, tokens = finish(params={"logit_bias": {toy.EOS: 100.0}})
    assert (end.reason, tokens) == (FinishReason.EOS, [toy.EOS])

    pair = finish(params={"max_tokens": 5, "ignore_eos": True})[1][1:3]
    end, tokens = finish(params={"max_tokens": 5, "ignore_eos": True}, stop=toy.StopAt(*pair))
    assert (end.reason, len(tokens)) == (FinishReason.STOP_STRING, 3)

    end, tokens = finish(params={"max_tokens": 50, "ignore_eos": True}, grammar=toy.Grammar())
    assert (end.reason, end.constraint_complete) == (FinishReason.GRAMMAR_END, True)
    assert sum(tokens) % 7 == 0

    end, tokens = finish(params={"max_tokens": 50, "min_tokens": 40}, grammar=toy.Grammar())
    assert (end.reason, end.constraint_complete) == (FinishReason.NO_LEGAL_TOKEN, True)
    early = f"complete after {len(tokens)} tokens, before sampling.min_tokens; the text is complete"
    assert end.message == f"the constraint was {early}"

    words = tuple((token,) for token in range(toy.VOCAB))
    end, tokens = finish(params={"bad_words": words}, grammar=toy.Grammar())
    assert (end.reason, tokens, end.constraint_complete) == (FinishReason.NO_LEGAL_TOKEN, [], False)

    end, _ = finish(params={"max_tokens": 1}, grammar=toy.Grammar())
    assert (end.reason, end.constraint_complete) in ((FinishReason.LENGTH, False), (FinishReason.LENGTH, True))


def test_the_context_bounds_the_output(toy):
    engine = toy.engine(context_length=20)
    engine.submit(toy.request("r", 1, 15, params={"max_tokens": 100, "ignore_eos": True}))
    result = toy.run(engine)["r", 0]
    assert (len(result.tokens), result.finish.reason) == (5, FinishReason.LENGTH)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"prompt": ()}, "prompt"),
        ({"prompt": (1, 40)}, "prompt"),
        ({"prompt": (-1,)}, "prompt"),
        ({"prompt": (2,) * 5000}, "prompt"),
        ({"n": 0}, "n"),
        ({"params": SamplingParams(logit_bias={40: 1.0})}, "logit_bias"),
        ({"params": SamplingParams(bad_words=((3, 99),))}, "bad_words"),
    ],
)
def test_what_the_model_cannot_run_is_refused_with_its_field(toy, fields, field):
    engine = toy.engine()
    good = {"request_id": "r", "prompt": (2, 3), "params": SamplingParams()}
    with pytest.raises(InvalidRequestError) as caught:
        engine.submit(GenerationRequest(**(good | fields)))
    assert field in caught.value.field
    assert not engine.has_work


def test_a_full_queue_refuses_and_keeps_what_it_has(toy):
    engine = toy.engine(max_waiting_requests=2, max_running=1)
    for index in range(2):
        engine.submit(toy.request(f"r{index}", index, 4))
    with pytest.raises(CapacityError):
        engine.submit(toy.request("one too many", 9, 4))
    assert len(toy.run(engine)) == 2

    engine = toy.engine(max_waiting_tokens=50)
    engine.submit(toy.request("a", 1, 30))
    with pytest.raises(CapacityError):
        engine.submit(toy.request("b", 2, 30))
    assert len(toy.run(engine)) == 1


def test_a_request_id_in_use_is_refused(toy):
    engine = toy.engine()
    engine.submit(toy.request("r", 1, 4))
    with pytest.raises(InvalidRequestError):
        engine.submit(toy.request("r", 1, 4))
    toy.run(engine)
