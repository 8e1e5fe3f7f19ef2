"""A constraint that is still being compiled while its request is in the engine, with a pool that compiles when told."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import os
import signal

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from decoding.errors import ConstraintError, EspalierError, UnsupportedConstraintError
from decoding.params import SamplingParams
from engine.request import GenerationRequest
from service.awaited_grammars import AwaitedGrammars
from service.engine_messages import DefineGrammar, Submit
from service.v1 import generation_pb2 as pb
from service.v1.common_pb2 import Constraint


class ToldPool:
    """The server's pool, whose compilations begin when `tell` is called, or fail with what it is given."""

    def __init__(self, server, monkeypatch):
        self.pool = server.model.catalog._pool
        self.compile_for_real = self.pool.compile
        self.told = asyncio.Event()
        self.error = None
        self.asked = self.left = 0
        monkeypatch.setattr(self.pool, "compile", self.compile)

    async def compile(self, spec, *, key=None):
        self.asked += 1
        try:
            await self.told.wait()
        except asyncio.CancelledError:
            self.left += 1
            raise
        if self.error is not None:
            raise copy.copy(self.error)
        return await self.compile_for_real(spec, key=key)

    def tell(self, error=None):
        self.error = error
        self.told.set()


@pytest.fixture
async def server(run_server):
    async with run_server(engine={"step_s": 0.001}) as running:
        yield running


@pytest.fixture
def pool(server, monkeypatch):
    return ToldPool(server, monkeypatch)


def request(pattern="[ab]{3}", **fields):
    return pb.GenerateRequest(text="a prompt", constraint=Constraint(regex=pattern), **fields)


async def until(condition):
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.005)
    pytest.fail("waited in vain")


async def held(server, count=1):
    """Wait until the engine has so many samples that gain nothing."""
    await until(lambda: server.model.engine.stats.blocks.used == count)


async def test_the_request_is_in_the_engine_before_its_constraint_is_compiled(server, pool):
    order = []

    async def read():
        call = server.generation.GenerateStream(pb.GenerateStreamRequest(request=request()))
        while (event := await call.read()) is not grpc.aio.EOF:
            order.append(event.WhichOneof("event"))

    reading = asyncio.create_task(read())
    await held(server)
    assert (pool.asked, order) == (1, [])
    order.append("compiled")
    pool.tell()
    await reading
    assert order[:3] == ["compiled", "started", "delta"]
    assert order[-1] == "finished"
    await server.freed()


async def test_whole_answers_and_batches_wait_for_it_too(server, pool):
    calls = [
        asyncio.ensure_future(server.generation.Generate(request(n=2))),
        asyncio.ensure_future(server.generation.GenerateBatch(pb.GenerateBatchRequest(requests=[request("c{4}")]))),
    ]
    await held(server, 3)
    pool.tell()
    whole, batch = await asyncio.gather(*calls)
    assert [len(sample.text) for sample in whole.samples] == [3, 3]
    assert batch.results[0].response.samples[0].text == "cccc"


async def test_what_was_compiled_before_is_submitted_with_its_grammar(server, pool):
    pool.tell()
    first = await server.generation.Generate(request())
    again = await server.generation.Generate(request())
    assert again.samples[0].text == first.samples[0].text
    assert pool.asked == 1


REFUSALS = {
    "impossible": (ConstraintError("constraint.regex", "matches no text"), grpc.StatusCode.INVALID_ARGUMENT),
    "unsupported": (UnsupportedConstraintError("constraint.regex", "is odd"), grpc.StatusCode.UNIMPLEMENTED),
}


def field(error):
    (packed,) = [detail for detail in rpc_status.from_call(error).details if "BadRequest" in detail.type_url]
    bad_request = error_details_pb2.BadRequest()
    packed.Unpack(bad_request)
    return bad_request.field_violations[0].field


@pytest.mark.parametrize(("error", "code"), REFUSALS.values(), ids=REFUSALS)
async def test_a_refusal_ends_its_own_request_with_status_and_field_and_frees_it(server, pool, error, code):
    message = request()
    whole = asyncio.ensure_future(server.generation.Generate(message))
    stream = server.generation.GenerateStream(pb.GenerateStreamRequest(request=message))
    first = asyncio.ensure_future(stream.read())
    batch = asyncio.ensure_future(server.generation.GenerateBatch(pb.GenerateBatchRequest(requests=[message])))
    await held(server, 3)
    pool.tell(error)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await whole
    assert (caught.value.code(), field(caught.value)) == (code, "constraint.regex")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await first  # instead of `started`
    assert (caught.value.code(), field(caught.value)) == (code, "request.constraint.regex")
    refused = (await batch).results[0].error
    assert (refused.code, refused.field) == (code.value[0], "constraint.regex")
    await server.freed()
    assert (await server.generation.Generate(pb.GenerateRequest(text="ab"))).samples[0].text == "ab"


async def test_what_is_wrong_on_its_face_or_was_refused_before_never_reaches_the_engine(server, pool, monkeypatch):
    pool.tell()
    with pytest.raises(grpc.aio.AioRpcError):
        await server.generation.Generate(request("(?!a)a"))
    monkeypatch.setattr(server.model.engine, "submit", lambda *_, **__: pytest.fail("was submitted"))
    for pattern in ("(?!a)a", "a" * 20_000):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await server.generation.Generate(request(pattern))
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


async def test_leaving_and_running_out_of_time_free_everything_and_leave_the_compilation_to_others(server, pool):
    stays = asyncio.ensure_future(server.generation.Generate(request()))
    leaves = server.generation.Generate(request())
    late = asyncio.ensure_future(server.generation.Generate(request(), timeout=0.5))
    await held(server, 3)
    leaves.cancel()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await late
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    await held(server, 1)
    assert pool.left == 2
    pool.tell()
    assert len((await stays).samples[0].text) == 3
    await server.freed()
    labels = {"model_name": "fake", "finished_reason": "cancelled"}
    assert server.model.metrics.registry.get_sample_value("vllm:request_success_total", labels) == 2


async def test_a_full_engine_refuses_and_nobody_waits_for_the_constraint(run_server, monkeypatch):
    async with run_server(engine={"step_s": 0.001, "max_live": 1}) as server:
        pool = ToldPool(server, monkeypatch)
        first = asyncio.ensure_future(server.generation.Generate(request()))
        await held(server)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await server.generation.Generate(request("b{4}"))
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert pool.left == 1
        pool.tell()
        await first


async def test_an_engine_that_dies_meanwhile_is_not_waited_for(server, pool):
    waiting = asyncio.ensure_future(server.generation.Generate(request()))
    await held(server)
    os.kill(server.model.engine.pid, signal.SIGKILL)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await waiting
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE


async def test_waiting_for_a_constraint_is_no_lack_of_progress(start_engine):
    """The engine can only wait, however long; once the grammar is there, progress is due."""
    client = await start_engine(stall_s=0.4)
    submit = plain_submit()
    async with client.submit(submit, is_held=True) as stream:
        await asyncio.sleep(1.2)
        assert not stream.is_finished
        with contextlib.suppress(asyncio.TimeoutError):
            reason = await asyncio.wait_for(client.failure(), 0.01)
            pytest.fail(reason)
        client.release(stream)
        assert "no progress" in await client.failure()


async def test_a_grammar_that_cannot_be_loaded_fails_those_who_wait_for_it(start_engine):
    client = await start_engine()
    async with client.submit(plain_submit(), is_held=True) as stream:
        client._child.send(DefineGrammar(key="key", packed=b"no pickle"))
        with pytest.raises(EspalierError, match="could not be loaded"):
            await anext(stream)
    await until(lambda: client.stats.blocks.used == 0)


def plain_submit():
    message = GenerationRequest(request_id="r", prompt=(65, 66), params=SamplingParams())
    return Submit(request=message, grammar_key="key")


def test_a_grammar_is_seen_as_soon_as_it_was_read_and_nobody_is_kept_who_left():
    arrivals = {}
    waiting = AwaitedGrammars(arrivals)
    first, second, other = (waiting.begin(name, key) for name, key in (("a", "k"), ("b", "k"), ("c", "l")))
    assert first.arrived() is None
    arrivals["k"] = EspalierError("cannot be loaded")
    assert first.arrived() is None
    arrivals["k"] = grammar = object()
    assert first.arrived() is grammar
    del arrivals["k"]
    assert first.arrived() is grammar
    assert second.arrived() is None
    waiting.leave("b")
    waiting.leave("never came")
    assert waiting.end("k") == [("a", first)]
    assert waiting.end("k") == []
    assert waiting.end("l") == [("c", other)]
