"""A real server process with a tiny random model, over a real channel."""

from __future__ import annotations

import ast
import asyncio
import json
import re

import grpc
import jsonschema
import pytest
import pytest_asyncio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from lark import Lark

from service.v1 import common_pb2, constraint_pb2, constraint_pb2_grpc, generation_pb2_grpc, model_pb2, model_pb2_grpc
from service.v1 import generation_pb2 as pb
from service.v1.common_pb2 import Constraint

pytestmark = pytest.mark.asyncio(loop_scope="module")

ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 1, "maximum": 999},
        "status": {"enum": ["open", "closed"]},
        "lines": {
            "type": "array",
            "minItems": 1,
            "maxItems": 3,
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string", "maxLength": 8}, "free": {"type": "boolean"}},
                "required": ["name", "free"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["id", "status", "lines"],
    "additionalProperties": False,
}
PATTERN = r"[A-Z]{2}-[0-9]{4}(-[a-z]{1,3})?"
CHOICES = ["yes", "no", "perhaps", "Straße 東京"]
LARK = """
start: _list{pair, ","} | "[" start "]"
_list{item, separator}: item (separator item)~0..3
pair: NAME "=" (NUMBER | NAME)
NAME: /[a-z]{1,6}/
NUMBER: /[0-9]{1,4}/
%ignore " "
"""


@pytest.fixture(scope="module")
def server(serve):
    with serve() as process:
        yield process.ready()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def channel(server):
    async with grpc.aio.insecure_channel(server.address) as channel:
        yield channel


@pytest.fixture(scope="module")
def generation(channel):
    return generation_pb2_grpc.GenerationServiceStub(channel)


def request(text="Once upon a time", constraint=None, n=None, **sampling):
    sampling = {"seed": 1, "max_tokens": 40, **sampling}
    return pb.GenerateRequest(text=text, constraint=constraint, n=n, sampling=pb.SamplingOptions(**sampling))


def is_valid(kind, text):
    match kind:
        case "schema":
            jsonschema.validate(json.loads(text), ORDER)
            return text == json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":")) or True
        case "spaced":
            jsonschema.validate(json.loads(text), ORDER)
            return ": " in text
        case "object":
            return isinstance(json.loads(text), dict)
        case "regex":
            return re.fullmatch(PATTERN, text) is not None
        case "choices":
            return text in CHOICES
        case "gbnf":
            return re.fullmatch(r"(\(+)[a-z]{1,5}(\)+)", text) is not None and text.count("(") == text.count(")")
        case "lark":
            return Lark(LARK).parse(text) is not None
        case "library":
            return ast.parse(text, mode="eval") is not None


CONSTRAINTS = {
    "schema": Constraint(json_schema=json.dumps(ORDER)),
    "spaced": Constraint(json_schema=json.dumps(ORDER), whitespace=common_pb2.WHITESPACE_POLICY_SPACED),
    "object": Constraint(json_object=common_pb2.JsonObject()),
    "regex": Constraint(regex=PATTERN),
    "choices": Constraint(choices=common_pb2.Choices(values=CHOICES)),
    "gbnf": Constraint(grammar=common_pb2.Grammar(text='root ::= "(" ( root | [a-z]{1,5} ) ")"')),
    "lark": Constraint(grammar=common_pb2.Grammar(text=LARK, notation=common_pb2.GRAMMAR_NOTATION_LARK)),
    "library": Constraint(grammar=common_pb2.Grammar(text="@arithmetic")),
}


async def test_concurrent_constrained_requests_are_all_valid(generation):
    """The model is random, so that it would break every constraint that it can."""
    kinds = [kind for kind in CONSTRAINTS for _ in range(4)]
    calls = [
        generation.Generate(request(constraint=CONSTRAINTS[kind], seed=seed, max_tokens=400, temperature=1.0, n=2))
        for seed, kind in enumerate(kinds)
    ]
    finished = 0
    for kind, response in zip(kinds, await asyncio.gather(*calls), strict=True):
        for sample in response.samples:
            if sample.completeness == common_pb2.COMPLETENESS_COMPLETE:
                assert is_valid(kind, sample.text), (kind, sample.text)
                finished += 1
            else:  # a random model may write an object that never ends
                assert sample.completeness == common_pb2.COMPLETENESS_VALID_PREFIX
                assert sample.finish_reason == common_pb2.FINISH_REASON_LENGTH
    assert finished > len(kinds)


@pytest.mark.parametrize("kind", ["schema", "object", "regex"])
async def test_a_text_that_must_be_whole_is_whole_within_the_limit_that_explain_tells(channel, generation, kind):
    constraints = constraint_pb2_grpc.ConstraintServiceStub(channel)
    explained = await constraints.Explain(constraint_pb2.ExplainRequest(constraint=CONSTRAINTS[kind]))
    assert is_valid(kind, explained.shortest)
    least = explained.shortest_tokens
    handle = (await constraints.Compile(constraint_pb2.CompileRequest(constraint=CONSTRAINTS[kind]))).handle
    for limit, constraint in ((least, CONSTRAINTS[kind]), (least + 5, Constraint(compiled=handle))):
        message = request(constraint=constraint, n=4, max_tokens=limit, finish_within_limit=True)
        for sample in (await generation.Generate(message)).samples:
            assert sample.completeness == common_pb2.COMPLETENESS_COMPLETE
            assert len(sample.token_ids) <= limit
            assert is_valid(kind, sample.text)


@pytest.mark.parametrize(
    ("kind", "limit", "code", "field"),
    [
        ("schema", 3, grpc.StatusCode.INVALID_ARGUMENT, "sampling.max_tokens: 3 tokens"),
        (None, 3, grpc.StatusCode.INVALID_ARGUMENT, "sampling.finish_within_limit: needs a constraint"),
        ("gbnf", 30, grpc.StatusCode.UNIMPLEMENTED, "sampling.finish_within_limit: cannot be promised"),
    ],
)
async def test_what_cannot_be_whole_in_time_is_refused_by_name(generation, kind, limit, code, field):
    message = request(constraint=CONSTRAINTS.get(kind), max_tokens=limit, finish_within_limit=True)
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await generation.Generate(message)
    assert refusal.value.code() is code
    assert refusal.value.details().startswith(field)


async def test_a_handle_gives_the_text_of_its_constraint(channel, generation):
    compiled = await constraint_pb2_grpc.ConstraintServiceStub(channel).Compile(
        constraint_pb2.CompileRequest(constraint=CONSTRAINTS["regex"])
    )
    by_handle = await generation.Generate(request(constraint=Constraint(compiled=compiled.handle)))
    in_full = await generation.Generate(request(constraint=CONSTRAINTS["regex"]))
    assert by_handle.samples[0].text == in_full.samples[0].text


@pytest.mark.parametrize("kind", [None, "schema"])
async def test_stream_batch_and_whole_answer_agree_for_equal_seeds(generation, kind):
    message = request(constraint=CONSTRAINTS.get(kind), n=2, logprobs=2, stop=["zq"])
    whole = await generation.Generate(message)
    texts, tokens = ["", ""], [[], []]
    async for event in generation.GenerateStream(pb.GenerateStreamRequest(request=message)):
        if event.HasField("delta"):
            texts[event.delta.index] += event.delta.text
            tokens[event.delta.index] += event.delta.token_ids
    assert texts == [sample.text for sample in whole.samples]
    assert tokens == [list(sample.token_ids) for sample in whole.samples]
    batch = await generation.GenerateBatch(pb.GenerateBatchRequest(requests=[message, request(seed=2)]))
    assert [sample.text for sample in batch.results[0].response.samples] == texts
    assert whole.samples[0].token_ids != whole.samples[1].token_ids


async def test_logprobs_are_those_of_a_distribution(generation):
    (sample,) = (await generation.Generate(request(logprobs=20, temperature=1.0, max_tokens=8))).samples
    assert len(sample.logprobs) == len(sample.token_ids)
    for token, position in zip(sample.token_ids, sample.logprobs, strict=True):
        assert position.chosen.token_id == token
        values = [top.logprob for top in position.top]
        assert values == sorted(values, reverse=True)
        assert values[0] <= 0


async def test_text_is_the_tokenizers_decoding_of_the_tokens(channel, generation):
    models = model_pb2_grpc.ModelServiceStub(channel)
    for seed in range(10):
        (sample,) = (await generation.Generate(request(seed=seed, temperature=1.0))).samples
        ask = model_pb2.DetokenizeRequest(ids=sample.token_ids, skip_special_tokens=True)
        decoded = (await models.Detokenize(ask)).text
        if sample.finish_reason == common_pb2.FINISH_REASON_LENGTH:  # may be cut within a character
            decoded = decoded.rstrip("\ufffd")
            assert sample.text.rstrip("\ufffd") == decoded
        else:
            assert sample.text == decoded


async def test_a_stop_string_ends_the_text_before_it(generation):
    (free,) = (await generation.Generate(request(temperature=1.0))).samples
    stop = free.text[5:8]
    (sample,) = (await generation.Generate(request(temperature=1.0, stop=[stop]))).samples
    assert sample.finish_reason == common_pb2.FINISH_REASON_STOP_STRING
    assert sample.text == free.text[: free.text.index(stop)]


async def test_a_chat_is_answered(generation):
    turns = [pb.ChatMessage(role="user", content="Name a tree.")]
    chat = pb.GenerateRequest(chat=pb.ChatPrompt(messages=turns), sampling=pb.SamplingOptions(max_tokens=4))
    assert (await generation.Generate(chat)).samples[0].usage.completion_tokens > 0


async def test_a_repeated_prompt_is_found_in_the_cache_unless_another_tenant_sent_it(generation):
    message = request("A long enough prompt to fill a block or two of the cache. " * 3)
    first, again = [await generation.Generate(message) for _ in range(2)]
    message.tenant = "other"
    other = await generation.Generate(message)
    assert first.usage.cached_tokens == other.usage.cached_tokens == 0 < again.usage.cached_tokens
    assert first.samples[0].text == again.samples[0].text == other.samples[0].text


async def test_drafters_change_no_text_and_tell_what_became_of_their_guesses(server, generation):
    message = request(temperature=0.0, max_tokens=60, ignore_eos=True)
    message.constraint.json_schema = json.dumps(ORDER)
    answers = {}
    for drafter in ("NONE", "forced", "forced+ngram", "AUTO"):
        message.speculation.drafter = drafter
        answers[drafter] = await generation.Generate(message)
    assert len({answer.samples[0].text for answer in answers.values()}) == 1
    assert answers["NONE"].usage.drafted_tokens == 0
    for drafter in ("forced", "forced+ngram", "AUTO"):
        usage = answers[drafter].usage
        assert 0 < usage.forced_tokens <= usage.accepted_tokens == sum(usage.accepted_per_position)
        assert usage.accepted_tokens + usage.rejected_by_model_tokens == usage.drafted_tokens
        assert min(usage.draft_ms, usage.mask_ms, usage.forward_ms, usage.sample_ms) > 0
    assert server.metric("espalier:spec_decode_num_forced_tokens_total") > 0


async def test_a_drafter_that_is_not_loaded_and_a_tree_that_is_too_large_are_refused_by_the_engine(generation):
    message = request()
    message.speculation.drafter = "suffix"
    with pytest.raises(grpc.aio.AioRpcError, match="start the server with --drafters") as caught:
        await generation.Generate(message)
    assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    message.speculation.drafter = "AUTO"
    message.speculation.max_draft_tokens = 65
    with pytest.raises(grpc.aio.AioRpcError, match="raise --max-draft-tokens") as caught:
        await generation.Generate(message)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def endless(n=1):
    return request(n=n, max_tokens=900, ignore_eos=True)


async def test_cancelling_mid_stream_frees_the_blocks(server, generation):
    call = generation.GenerateStream(pb.GenerateStreamRequest(request=endless(n=4)))
    while not (await call.read()).HasField("delta"):
        pass
    await asyncio.to_thread(server.wait_for_metric, "vllm:num_requests_running", 4)
    assert server.metric("vllm:kv_cache_usage_perc") > 0
    call.cancel()
    await asyncio.to_thread(server.wait_for_metric, "vllm:kv_cache_usage_perc", 0)
    assert server.metric("vllm:num_requests_running") == 0


async def test_a_client_that_disconnects_frees_the_blocks(server):
    other = grpc.aio.insecure_channel(server.address)
    call = generation_pb2_grpc.GenerationServiceStub(other).GenerateStream(
        pb.GenerateStreamRequest(request=endless(n=2))
    )
    while not (await call.read()).HasField("delta"):
        pass
    await other.close(None)
    await asyncio.to_thread(server.wait_for_metric, "vllm:kv_cache_usage_perc", 0)


async def test_a_deadline_frees_the_blocks(server, generation):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await generation.Generate(endless(n=8), timeout=0.3)
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    await asyncio.to_thread(server.wait_for_metric, "vllm:kv_cache_usage_perc", 0)


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (pb.GenerateRequest(text=""), "text"),
        (request("x y " * 1000), "text"),
        (request(temperature=-1.0), "sampling.temperature"),
        (request(top_p=float("nan")), "sampling.top_p"),
        (pb.GenerateRequest(text="x", model="gpt"), "model"),
        (pb.GenerateRequest(tokens=pb.TokenPrompt(ids=[515])), "tokens.ids[0]"),
        (request(n=2**31), "n"),
        (request(constraint=Constraint(json_schema="{")), "constraint.json_schema"),
        (request(constraint=Constraint(json_schema='{"type":"nothing"}')), "constraint.json_schema"),
        (request(constraint=Constraint(regex="[")), "constraint.regex"),
    ],
)
async def test_bad_input_is_refused_by_field_and_the_server_lives(server, generation, message, field):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await generation.Generate(message)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details().startswith(f"{field}: ")
    assert (await generation.Generate(request(max_tokens=2))).samples
    await asyncio.to_thread(server.wait_for_metric, "vllm:kv_cache_usage_perc", 0)


async def test_health_and_the_model_are_told(channel):
    answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    (model,) = (await model_pb2_grpc.ModelServiceStub(channel).ListModels(model_pb2.ListModelsRequest())).models
    assert (model.architecture, model.vocab_size, model.device) == ("llama", 512, "cpu")
