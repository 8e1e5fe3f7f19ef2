"""Streams against a scripted server, through both clients."""

from __future__ import annotations

import threading

import pytest
from grpc_status import rpc_status

from decoding import errors as server_errors
from service import errors as server_status
from service.client import (
    CallCancelledError,
    Delta,
    Finished,
    InternalError,
    Request,
    Started,
    UnavailableError,
    Usage,
)
from service.v1 import generation_pb2
from tests.client.answers import delta, finished, started


def test_a_stream_of_typed_events(server, client):
    server.play("GenerateStream", lambda request, context: [started(), delta("He"), delta("llo"), finished()])
    stream = client.stream("p", max_tokens=4)
    events = list(stream)
    assert server.requests == [generation_pb2.GenerateStreamRequest(request=Request("p", max_tokens=4).message)]
    assert [type(event) for event in events] == [Started, Delta, Delta, Finished]
    assert "".join(event.text for event in events) == "Hello"
    generation = stream.result()
    assert (generation.text, generation.seed, generation.samples[0].token_ids) == ("Hello", 11, (1, 1))
    assert generation.usage == Usage(prompt_tokens=3, completion_tokens=2)
    assert stream.result() == generation


def test_result_reads_what_is_left_and_is_there_after_the_with_block(server, client):
    events = [started(), delta("12"), delta("b", 1), delta("3"), finished(1), finished(0)]
    server.play("GenerateStream", lambda request, context: events)
    with client.stream("p", schema={"type": "integer"}, n=2) as stream:
        next(iter(stream))
        generation = stream.result()
    assert [sample.text for sample in generation.samples] == ["123", "b"]
    assert generation.parsed == 123
    assert stream.result() == generation


@pytest.mark.parametrize("how", ["close", "with"])
def test_leaving_a_stream_early_cancels_it_on_the_server(server, client, how):
    ended = threading.Event()

    def answer(request, context):
        context.add_callback(ended.set)
        yield started()
        for number in range(10_000):
            if ended.wait(0.01):
                return
            yield delta(str(number))

    server.play("GenerateStream", answer)
    stream = client.stream("p")
    if how == "close":
        next(iter(stream))
        stream.close()
    else:
        with stream:
            next(iter(stream))
    assert ended.wait(10)
    assert list(stream) == []
    with pytest.raises(CallCancelledError):
        stream.result()


def test_an_error_in_mid_stream_keeps_what_came_before(server, client):
    def answer(request, context):
        yield started()
        yield delta("par")
        context.abort_with_status(rpc_status.to_status(server_status.to_status(server_errors.UnavailableError("dead"))))

    server.play("GenerateStream", answer)
    with client.stream("p") as stream:
        events = iter(stream)
        assert [next(events).text, next(events).text] == ["", "par"]
        with pytest.raises(UnavailableError, match="dead"):
            next(events)
    with pytest.raises(UnavailableError, match="dead"):
        stream.result()


def test_a_stream_that_stops_short_is_the_server_s_defect(server, client):
    server.play("GenerateStream", lambda request, context: [started(), delta("par")])
    with pytest.raises(InternalError, match="every sample"):
        client.stream("p").result()
