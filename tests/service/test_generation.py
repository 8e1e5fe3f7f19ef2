"""GenerationService over a real channel; the engine is a fake one that says the prompt again."""

from __future__ import annotations

import asyncio
import json
import re

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.v1 import common_pb2, constraint_pb2
from service.v1 import generation_pb2 as pb

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATTERN = "[0-9]{3}-[a-f]{1,4}x"


def request(text="Name a tree.", n=None, constraint=None, priority=0, tenant="", model="", **sampling):
    words = sampling.pop("bad_words", None)
    options = pb.SamplingOptions(**sampling)
    if words is not None:
        options.bad_words.words.extend(words)
    return pb.GenerateRequest(
        text=text, n=n, constraint=constraint, sampling=options, priority=priority, tenant=tenant, model=model
    )


async def stream(server, message, **options):
    call = server.generation.GenerateStream(pb.GenerateStreamRequest(request=message), **options)
    return [event async for event in call]


async def test_a_whole_answer(server):
    response = await server.generation.Generate(request(seed=7))
    (sample,) = response.samples
    prompt = await server.model.tokenizer.encode("Name a tree.", add_special_tokens=True)
    assert sample.text == "Name a tree."
    assert tuple(sample.token_ids) == (*prompt, 2)
    assert sample.finish_reason == common_pb2.FINISH_REASON_EOS
    assert sample.completeness == common_pb2.COMPLETENESS_UNSPECIFIED
    assert (sample.usage.prompt_tokens, sample.usage.completion_tokens) == (len(prompt), len(prompt) + 1)
    assert (response.seed, response.model, len(response.request_id)) == (7, "fake", 32)


async def test_a_stream_starts_goes_on_and_finishes(server):
    events = await stream(server, request(seed=7))
    kinds = [event.WhichOneof("event") for event in events]
    assert kinds[0] == "started"
    assert kinds[-1] == "finished"
    assert set(kinds[1:-1]) == {"delta"}
    assert "".join(event.delta.text for event in events) == "Name a tree."
    assert events[0].started.seed == 7
    assert events[0].started.prompt_tokens == events[-1].finished.usage.prompt_tokens


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text("aé東🌳 xyz", min_size=1, max_size=12),
    n=st.integers(1, 3),
    stop=st.lists(st.text("é東🌳 xyz", min_size=1, max_size=3), max_size=2),
    logprobs=st.none() | st.integers(0, 2),
    max_tokens=st.integers(1, 20),
)
async def test_a_stream_joined_is_the_whole_answer(server, text, n, stop, logprobs, max_tokens):
    message = request(text, n=n, stop=stop, logprobs=logprobs, max_tokens=max_tokens, seed=1)
    whole = await server.generation.Generate(message)
    samples = [pb.Sample(index=index) for index in range(n)]
    for event in await stream(server, message):
        if event.HasField("delta"):
            sample = samples[event.delta.index]
            sample.text += event.delta.text
            sample.token_ids.extend(event.delta.token_ids)
            sample.logprobs.extend(event.delta.logprobs)
        elif event.HasField("finished"):
            sample = samples[event.finished.index]
            assert sample.finish_reason == common_pb2.FINISH_REASON_UNSPECIFIED
            for field in ("finish_reason", "completeness", "message"):
                setattr(sample, field, getattr(event.finished, field))
            sample.usage.CopyFrom(event.finished.usage)
    assert samples == list(whole.samples)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text("ab", min_size=1, max_size=30), stop=st.text("ab", min_size=1, max_size=3))
async def test_text_ends_before_the_stop_string(server, text, stop):
    (sample,) = (await server.generation.Generate(request(text, stop=[stop]))).samples
    assert sample.text == text.partition(stop)[0]
    stopped = sample.finish_reason == common_pb2.FINISH_REASON_STOP_STRING
    assert stopped == (stop in text)


async def test_a_text_that_length_cuts_within_a_character_ends_before_it(server):
    prompt = await server.model.tokenizer.encode("a\u9f98", add_special_tokens=True)
    assert len(prompt) == 4  # the character is three tokens here
    events = await stream(server, request("a\u9f98", max_tokens=3))
    assert "".join(event.delta.text for event in events) == "a"
    assert events[-1].finished.finish_reason == common_pb2.FINISH_REASON_LENGTH


async def test_logprobs_name_the_tokens_and_their_bytes(server):
    (sample,) = (await server.generation.Generate(request("ab", logprobs=1))).samples
    assert len(sample.logprobs) == len(sample.token_ids)
    tokens = server.model.vocabulary.tokens
    for token, position in zip(sample.token_ids, sample.logprobs, strict=True):
        assert (position.chosen.token_id, position.chosen.token) == (token, tokens[token])
        assert position.chosen.logprob == -0.5
        assert [top.token_id for top in position.top] == [token]
    assert not (await server.generation.Generate(request("ab"))).samples[0].logprobs


async def test_usage_counts_the_prompt_once(server):
    response = await server.generation.Generate(request("abc", n=3))
    each = response.samples[0].usage
    assert response.usage.prompt_tokens == each.prompt_tokens
    assert response.usage.completion_tokens == 3 * each.completion_tokens


async def test_an_unset_seed_is_drawn_and_told(server):
    seeds = {(await server.generation.Generate(request())).seed for _ in range(3)}
    assert len(seeds) == 3


async def test_max_tokens_is_256_by_default_and_cut_to_the_context(server):
    context = server.model.card.context_length
    (sample,) = (await server.generation.Generate(request("ab", ignore_eos=True))).samples
    assert len(sample.token_ids) == context - sample.usage.prompt_tokens < 256
    (sample,) = (await server.generation.Generate(request("ab", ignore_eos=True, max_tokens=2**32 - 1))).samples
    assert len(sample.token_ids) == context - sample.usage.prompt_tokens


async def test_token_and_chat_prompts(server):
    tokens = pb.GenerateRequest(tokens=pb.TokenPrompt(ids=[70, 71]))
    assert list((await server.generation.Generate(tokens)).samples[0].token_ids) == [70, 71, 2]
    messages = [pb.ChatMessage(role="user", content="Hi")]
    chat = pb.GenerateRequest(chat=pb.ChatPrompt(messages=messages))
    rendered = await server.model.tokenizer.encode_chat([{"role": "user", "content": "Hi"}])
    (sample,) = (await server.generation.Generate(chat)).samples
    assert sample.usage.prompt_tokens == len(rendered)
    assert tuple(sample.token_ids) == rendered[: rendered.index(2) + 1]  # the fake stops where the prompt says EOS


@pytest.mark.parametrize(
    ("constraint", "is_valid"),
    [
        (common_pb2.Constraint(regex=PATTERN), re.compile(PATTERN).fullmatch),
        (common_pb2.Constraint(choices=common_pb2.Choices(values=["yes", "no"])), {"yes", "no"}.__contains__),
        (
            common_pb2.Constraint(json_schema=json.dumps({"enum": ["red", {"a": [1, None]}]})),
            lambda text: json.loads(text) in ("red", {"a": [1, None]}),
        ),
    ],
    ids=["regex", "choices", "schema"],
)
async def test_constrained_text_is_valid_and_complete(server, constraint, is_valid):
    (sample,) = (await server.generation.Generate(request(constraint=constraint, max_tokens=100))).samples
    assert sample.completeness == common_pb2.COMPLETENESS_COMPLETE
    assert is_valid(sample.text)
    compiled = await server.constraint.Compile(constraint_pb2.CompileRequest(constraint=constraint))
    again = request(constraint=common_pb2.Constraint(compiled=compiled.handle), max_tokens=100)
    assert (await server.generation.Generate(again)).samples[0].text == sample.text


async def test_a_constrained_text_that_is_cut_is_a_valid_prefix(server):
    constraint = common_pb2.Constraint(regex="[0-9]{30}")
    (sample,) = (await server.generation.Generate(request(constraint=constraint, max_tokens=5))).samples
    assert sample.completeness == common_pb2.COMPLETENESS_VALID_PREFIX
    assert re.fullmatch("[0-9]{5}", sample.text)


async def test_an_empty_constraint_is_free_text(server):
    (sample,) = (await server.generation.Generate(request("ab", constraint=common_pb2.Constraint()))).samples
    assert sample.text == "ab"


async def test_items_of_a_batch_fail_alone_and_keep_their_order(server):
    batch = pb.GenerateBatchRequest(
        requests=[request("ab"), request("ab", temperature=-1.0), request(""), request("cd")]
    )
    results = (await server.generation.GenerateBatch(batch)).results
    assert [result.WhichOneof("outcome") for result in results] == ["response", "error", "error", "response"]
    assert [results[0].response.samples[0].text, results[3].response.samples[0].text] == ["ab", "cd"]
    assert results[1].error.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert results[1].error.field == "sampling.temperature"
    assert results[2].error.field == "text"


async def test_a_batch_is_told_about_a_full_queue_item_by_item(server):
    batch = pb.GenerateBatchRequest(requests=[request("ab" * 20) for _ in range(20)])
    results = (await server.generation.GenerateBatch(batch)).results
    codes = {result.error.code for result in results if result.HasField("error")}
    assert codes == {grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]}
    assert sum(result.HasField("response") for result in results) >= 8


async def test_many_at_once_get_their_own_answers(server):
    texts = [f"number {index}" for index in range(8)]
    responses = await asyncio.gather(*(server.generation.Generate(request(text)) for text in texts))
    assert [response.samples[0].text for response in responses] == texts
