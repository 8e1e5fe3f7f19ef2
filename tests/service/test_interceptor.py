"""Deadlines by timer, and what is logged of a call."""

from __future__ import annotations

import asyncio
import logging
import types

import pytest
from grpc._cython import cygrpc

from service.errors import DeadlineError
from service.interceptor import _guarded, _within_deadline
from service.v1 import generation_pb2 as pb


def context(remaining):
    return types.SimpleNamespace(time_remaining=lambda: remaining)


async def forever(_request, _context):
    await asyncio.Event().wait()


@pytest.mark.parametrize("remaining", [0.05, 0.0, -1.0])
async def test_the_timer_ends_a_call_whatever_the_transport_does(remaining):
    with pytest.raises(DeadlineError, match="allow more time"):
        await _within_deadline(forever, None, context(remaining))


async def test_a_timeout_of_the_method_itself_is_no_deadline():
    async def fails(_request, _context):
        raise TimeoutError("another timer")

    with pytest.raises(TimeoutError, match="another timer"):
        await _within_deadline(fails, None, context(10.0))


async def test_without_a_deadline_there_is_no_timer():
    async def answers(_request, _context):
        await asyncio.sleep(0)
        return "answer"

    assert await _within_deadline(answers, None, context(None)) == "answer"


async def test_a_call_is_one_line_and_holds_no_prompt(run_server, caplog):
    async with run_server() as server:
        with caplog.at_level(logging.INFO):
            await server.generation.Generate(pb.GenerateRequest(text="secret words"))
        (call,) = [record for record in caplog.records if record.name == "service.interceptor"]
        assert (call.method, call.code) == ("/espalier.v1.GenerationService/Generate", "OK")
        (request,) = [record for record in caplog.records if record.name == "service.run"]
        assert (request.samples, request.finished) == (1, 1)
        assert request.ttft_ms <= request.ms
        assert not any("secret" in str(vars(record)) for record in caplog.records)


async def test_prompts_are_logged_where_the_server_was_told_to(run_server, caplog):
    async with run_server(log_prompts=True) as server:
        with caplog.at_level(logging.INFO):
            await server.generation.Generate(pb.GenerateRequest(text="secret words"))
        assert any("secret words" in str(vars(record)) for record in caplog.records)


class ClosedContext:
    """A call that the transport ended while its method was failing, as it does at the client's own deadline."""

    def __init__(self, problem):
        self._problem = problem

    def time_remaining(self):
        return 0.0

    def cancelled(self):
        return False

    async def abort(self, *_status):
        raise self._problem


async def test_a_status_that_comes_after_the_transport_closed_the_call_is_dropped_quietly(caplog):
    guarded = _guarded(forever, bytes, "/espalier.v1.GenerationService/Generate")
    with caplog.at_level(logging.INFO), pytest.raises(asyncio.CancelledError) as dropped:
        await guarded(b"", ClosedContext(cygrpc.ExecuteBatchError("Failed")))
    assert dropped.value.__suppress_context__
    (call,) = caplog.records
    assert (call.levelname, call.code) == ("INFO", "DEADLINE_EXCEEDED")


async def test_any_other_failure_to_abort_is_not_swallowed():
    guarded = _guarded(forever, bytes, "/espalier.v1.GenerationService/Generate")
    with pytest.raises(RuntimeError, match="odd"):
        await guarded(b"", ClosedContext(RuntimeError("odd")))
