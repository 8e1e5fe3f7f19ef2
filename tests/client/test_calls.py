"""Every call against a scripted server, through both clients."""

from __future__ import annotations

import threading

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2
from pydantic import BaseModel

from decoding import errors as server_errors
from service import errors as server_status
from service.client import (
    CallCancelledError,
    Completeness,
    DeadlineExceededError,
    EnforcedKeyword,
    Explanation,
    FailedPreconditionError,
    FinishReason,
    Health,
    InternalError,
    InvalidArgumentError,
    Limits,
    Model,
    PositionLogprobs,
    Request,
    ResourceExhaustedError,
    Tokenization,
    TokenLogprob,
    UnavailableError,
    UnenforcedKeyword,
    UnsupportedError,
    Usage,
)
from service.v1 import common_pb2, constraint_pb2, generation_pb2, model_pb2
from tests.client.answers import delta, fail, fail_with, finished, response, started, wait_forever


class Person(BaseModel):
    name: str
    age: int


def test_generate(server, client):
    keyword = common_pb2.UnenforcedKeyword(pointer="/not", keyword="not", reason="why")
    server.play("Generate", response(unenforced=[keyword]))
    generation = client.generate("Who?", schema=Person, temperature=0.0, best_effort=True)
    assert server.requests == [Request("Who?", schema=Person, temperature=0.0, best_effort=True).message]
    assert generation.parsed == Person(name="Ann", age=3)
    assert (generation.request_id, generation.model, generation.seed) == ("r", "tiny", 11)
    assert generation.usage == Usage(prompt_tokens=3, completion_tokens=2, drafted_tokens=5)
    assert generation.unenforced == (UnenforcedKeyword(pointer="/not", keyword="not", reason="why"),)
    (sample,) = generation.samples
    assert sample.token_ids == (7, 8)
    assert sample.logprobs == (
        PositionLogprobs(
            chosen=TokenLogprob(token_id=7, token=b"\xc3", logprob=-0.5),
            top=(TokenLogprob(token_id=9, token=b"x", logprob=-0.25),),
        ),
    )
    assert (sample.finish_reason, sample.completeness) == (FinishReason.CONSTRAINT_END, Completeness.COMPLETE)


def test_two_constraints_never_reach_the_server(server, client):
    for call in (client.generate, client.stream):
        with pytest.raises(InvalidArgumentError):
            call("p", regex="a", choices=["a"])
    with pytest.raises(InvalidArgumentError):
        client.compile(regex="a", json_object=True)
    with pytest.raises(InvalidArgumentError, match="missing"):
        client.compile()
    assert server.requests == []


def test_compile_and_use_the_handle(server, client):
    reply = constraint_pb2.CompileResponse(
        handle="h1",
        compile_ms=2.5,
        cached=True,
        size_bytes=100,
        states=9,
        unenforced=[common_pb2.UnenforcedKeyword(pointer="/a", keyword="b", reason="c")],
    )
    server.play("Compile", reply)
    server.play("Generate", response())
    compiled = client.compile(schema=Person, whitespace="spaced", model="tiny")
    assert (compiled.handle, compiled.compile_ms, compiled.cached) == ("h1", 2.5, True)
    assert (compiled.size_bytes, compiled.states) == (100, 9)
    assert compiled.unenforced == (UnenforcedKeyword(pointer="/a", keyword="b", reason="c"),)
    assert client.generate("p", constraint=compiled).parsed == Person(name="Ann", age=3)
    sent, used = server.requests
    assert sent.model == "tiny"
    assert sent.constraint == Request("p", schema=Person, whitespace="spaced").message.constraint
    assert used.constraint.compiled == "h1"


def test_explain_tells_all_that_the_server_said(server, client):
    reply = constraint_pb2.ExplainResponse(
        normalised="{}",
        enforced=[constraint_pb2.EnforcedKeyword(pointer="/type", keyword="type")],
        unenforced=[common_pb2.UnenforcedKeyword(pointer="/a", keyword="a", reason="c")],
        states=4,
        size_bytes=5,
        shortest="",
        shortest_tokens=0,
    )
    server.play("Explain", reply)
    assert client.explain(schema=Person, whitespace="spaced", model="tiny") == Explanation(
        normalised="{}",
        enforced=(EnforcedKeyword(pointer="/type", keyword="type"),),
        unenforced=(UnenforcedKeyword(pointer="/a", keyword="a", reason="c"),),
        states=4,
        size_bytes=5,
        shortest="",
        shortest_tokens=0,
    )
    (sent,) = server.requests
    assert sent.model == "tiny"
    assert sent.constraint == Request("p", schema=Person, whitespace="spaced").message.constraint
    server.play("Explain", constraint_pb2.ExplainResponse(normalised="@sql"))
    untold = client.explain(grammar="@sql")
    assert (untold.shortest, untold.shortest_tokens) == (None, None)


def test_batch_gives_each_item_its_own_result_or_error(server, client):
    error = generation_pb2.BatchError(code=code_pb2.INVALID_ARGUMENT, message="n: is 99", field="requests[1].n")
    full = generation_pb2.BatchError(code=code_pb2.RESOURCE_EXHAUSTED, message="the queue is full")
    results = [
        generation_pb2.BatchResult(response=response()),
        generation_pb2.BatchResult(error=error),
        generation_pb2.BatchResult(response=response("yes")),
        generation_pb2.BatchResult(error=full),
    ]
    server.play("GenerateBatch", generation_pb2.GenerateBatchResponse(results=results))
    requests = [
        Request("a", schema=Person),
        Request("b", n=99),
        Request("c", choices=["yes", "no"]),
        Request("d"),
    ]
    first, second, third, fourth = client.generate_batch(requests)
    assert list(server.requests[0].requests) == [request.message for request in requests]
    assert first.parsed == Person(name="Ann", age=3)
    assert (type(second), second.field, str(second)) == (InvalidArgumentError, "requests[1].n", "n: is 99")
    assert third.parsed == "yes"
    assert type(fourth) is ResourceExhaustedError


def test_models(server, client):
    limits = {name: index for index, name in enumerate(model_pb2.Limits.DESCRIPTOR.fields_by_name, 1)}
    fields = {"name": "tiny", "architecture": "llama", "parameters": 5, "dtype": "float32", "device": "cpu"}
    fields |= {"vocab_size": 512, "has_chat_template": True, "server_version": "0.1.0"}
    fields |= {"draft_tokens": 8, "tree_width": 2, "verifier": "walk"}
    lists = {"eos_token_ids": (0, 2), "drafters": ("forced", "ngram")}
    message = model_pb2.Model(**fields, **lists, limits=model_pb2.Limits(**limits))
    server.play("ListModels", model_pb2.ListModelsResponse(models=[message]))
    assert client.models() == (Model(**fields, **lists, limits=Limits(**limits)),)


def test_tokenize_and_detokenize(server, client):
    server.play("Tokenize", model_pb2.TokenizeResponse(ids=[1, 2], tokens=[b"a", b"\xff"]))
    server.play("Detokenize", model_pb2.DetokenizeResponse(text="ab"))
    assert client.tokenize("ab", add_special_tokens=True, model="m") == Tokenization(ids=(1, 2), tokens=(b"a", b"\xff"))
    assert client.detokenize([1, 2], skip_special_tokens=True, model="m") == "ab"
    assert server.requests == [
        model_pb2.TokenizeRequest(model="m", text="ab", add_special_tokens=True),
        model_pb2.DetokenizeRequest(model="m", ids=[1, 2], skip_special_tokens=True),
    ]
    with pytest.raises(InvalidArgumentError) as caught:
        client.detokenize([-1])
    assert caught.value.field == "ids"
    with pytest.raises(InvalidArgumentError) as caught:
        client.tokenize("\ud800")
    assert caught.value.field == "text"


@pytest.mark.parametrize(
    ("status", "health"),
    [("SERVING", Health.SERVING), ("NOT_SERVING", Health.NOT_SERVING), ("SERVICE_UNKNOWN", Health.UNKNOWN)],
)
def test_health(server, client, status, health):
    server.play("Check", health_pb2.HealthCheckResponse(status=status))
    assert client.health() is health
    assert server.requests == [health_pb2.HealthCheckRequest()]


@pytest.mark.parametrize(
    ("raised", "kind", "attributes"),
    [
        (
            server_errors.InvalidRequestError("sampling.temperature", "value -1 is outside [0, 100]"),
            InvalidArgumentError,
            {"field": "sampling.temperature", "pointer": None},
        ),
        (
            server_errors.ConstraintError("constraint.json_schema", "minLength > maxLength", "/properties/a"),
            InvalidArgumentError,
            {"field": "constraint.json_schema", "pointer": "/properties/a"},
        ),
        (
            server_errors.UnsupportedConstraintError("constraint.json_schema", "not is not enforced", "/not"),
            UnsupportedError,
            {"field": "constraint.json_schema", "pointer": "/not"},
        ),
        (server_errors.CapacityError("the queue is full", 2.5), ResourceExhaustedError, {"retry_after": 2.5}),
        (server_errors.PreconditionError("the constraint is gone"), FailedPreconditionError, {}),
        (server_errors.UnavailableError("draining"), UnavailableError, {}),
        (server_status.DeadlineError("too late"), DeadlineExceededError, {}),
        (RuntimeError("secret"), InternalError, {"code": "INTERNAL"}),
    ],
)
def test_what_the_server_raises_arrives_as_its_counterpart(server, client, raised, kind, attributes):
    status = server_status.to_status(raised)
    server.play("Generate", fail_with(status))
    server.play("GenerateStream", fail_with(status))
    for call in (lambda: client.generate("p"), lambda: list(client.stream("p"))):
        with pytest.raises(kind) as caught:
            call()
        assert type(caught.value) is kind
        assert str(caught.value) == status.message
        assert {name: getattr(caught.value, name) for name in attributes} == attributes


@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK])
def test_every_status_without_details_has_an_exception(server, client, code):
    expected = {
        "INVALID_ARGUMENT": InvalidArgumentError,
        "UNIMPLEMENTED": UnsupportedError,
        "RESOURCE_EXHAUSTED": ResourceExhaustedError,
        "FAILED_PRECONDITION": FailedPreconditionError,
        "DEADLINE_EXCEEDED": DeadlineExceededError,
        "UNAVAILABLE": UnavailableError,
        "CANCELLED": CallCancelledError,
    }.get(code.name, InternalError)
    server.play("Generate", fail(code, "why"))
    server.play("GenerateStream", fail(code, "why"))
    for call in (lambda: client.generate("p"), lambda: list(client.stream("p"))):
        with pytest.raises(expected) as caught:
            call()
        assert type(caught.value) is expected
        if expected is InternalError:
            assert caught.value.code == code.name


def test_details_that_contradict_the_status_are_left_alone(server, client):
    packed = AnyMessage()
    packed.Pack(error_details_pb2.RetryInfo())
    other = status_pb2.Status(code=code_pb2.RESOURCE_EXHAUSTED, message="full", details=[packed]).SerializeToString()

    for details in (other, b"\xff\xff\xff"):

        def answer(request, context, details=details):
            context.set_trailing_metadata((("grpc-status-details-bin", details),))
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "bad")

        server.play("Generate", answer)
        with pytest.raises(InvalidArgumentError, match="bad") as caught:
            client.generate("p")
        assert caught.value.field is None


def test_no_server_is_unavailable(connect):
    client = connect("127.0.0.1:1")
    for call in (lambda: client.generate("p"), lambda: list(client.stream("p")), client.health):
        with pytest.raises(UnavailableError):
            call()


def test_a_timeout_ends_the_call_on_both_sides(server, client):
    answer, _, ended = wait_forever()
    server.play("Generate", answer)
    with pytest.raises(DeadlineExceededError):
        client.generate("p", timeout=0.2)
    assert ended.wait(10)
    with pytest.raises(DeadlineExceededError):
        client.generate("p", timeout=-1.0)


def test_the_client_s_own_timeout_is_the_default_of_every_call(server, connect):
    def answer(request, context):
        ended = threading.Event()
        context.add_callback(ended.set)
        ended.wait(30)
        return generation_pb2.GenerateResponse()

    for name in ("Generate", "GenerateBatch", "Compile", "ListModels", "Tokenize", "Detokenize", "Check"):
        server.play(name, answer)
    server.play("GenerateStream", lambda request, context: (answer(request, context) for _ in "a"))
    client = connect(server.address, timeout=0.3)
    calls = [
        lambda: client.generate("p"),
        lambda: client.stream("p").result(),
        lambda: client.generate_batch([Request("p")]),
        lambda: client.compile(regex="a"),
        client.models,
        lambda: client.tokenize("a"),
        lambda: client.detokenize([1]),
        client.health,
    ]
    for call in calls:
        with pytest.raises(DeadlineExceededError):
            call()


def test_infinity_is_no_deadline(server, connect):
    remaining = []

    def answer(request, context):
        remaining.append(context.time_remaining())
        return response()

    server.play("Generate", answer)
    client = connect(server.address, timeout=0.001)
    client.generate("p", timeout=float("inf"))
    client.generate("p", timeout=50.0)
    assert remaining[0] is None or remaining[0] > 1e9
    assert 0 < remaining[1] < 60


def test_unavailable_is_not_retried_by_default(server, client):
    server.play("Generate", fail(grpc.StatusCode.UNAVAILABLE, "draining"))
    with pytest.raises(UnavailableError, match="draining"):
        client.generate("p")
    assert len(server.requests) == 1


def test_retries_are_spent_on_unavailable_alone(server, connect):
    client = connect(server.address, retries=3)

    def answer(request, context):
        if len(server.requests) < 3:
            context.abort(grpc.StatusCode.UNAVAILABLE, "starting")
        return response()

    server.play("Generate", answer)
    assert client.generate("p", schema=Person).parsed.name == "Ann"
    assert len(server.requests) == 3
    for code, kind in (("RESOURCE_EXHAUSTED", ResourceExhaustedError), ("INTERNAL", InternalError)):
        server.requests.clear()
        server.play("Generate", fail(grpc.StatusCode[code], "no"))
        with pytest.raises(kind):
            client.generate("p")
        assert len(server.requests) == 1


def test_a_stream_is_retried_before_its_first_event_only(server, connect):
    client = connect(server.address, retries=2)

    def late(request, context):
        yield started()
        context.abort(grpc.StatusCode.UNAVAILABLE, "dead")

    server.play("GenerateStream", late)
    with pytest.raises(UnavailableError, match="dead"):
        client.stream("p").result()
    assert len(server.requests) == 1

    def early(request, context):
        if len(server.requests) < 3:
            context.abort(grpc.StatusCode.UNAVAILABLE, "starting")
        yield from [started(), delta("x"), finished()]

    server.play("GenerateStream", early)
    assert client.stream("p").result().text == "x"
    assert len(server.requests) == 3


def test_answers_of_any_size_are_received(server, client):
    text = "x" * (5 << 20)  # past gRPC's own default of 4 MiB
    server.play("Generate", response(text))
    assert client.generate("p", choices=[text[:3]]).text == text


def test_concurrent_calls_of_one_client(server, client):
    barrier = threading.Barrier(4)

    def answer(request, context):
        barrier.wait(20)
        return response(request.text)

    server.play("Generate", answer)
    texts: dict[int, str] = {}
    threads = [threading.Thread(target=lambda i=i: texts.update({i: client.generate(f"p{i}").text})) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert texts == {i: f"p{i}" for i in range(4)}


def test_close_cancels_calls_in_flight(server, connect):
    answer, begun, ended = wait_forever()
    server.play("Generate", answer)
    client = connect(server.address)
    caught: list[BaseException] = []

    def call():
        try:
            client.generate("p")
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    assert begun.wait(10)
    if hasattr(client, "wait"):
        client.wait(client._client.close())
    else:
        client.close()
    thread.join(20)
    assert ended.wait(10)
    assert [type(error) for error in caught] == [CallCancelledError]
