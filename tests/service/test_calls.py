"""How calls end other than by an answer: cancellation, disconnects, deadlines, slow readers, floods, dead engines."""

from __future__ import annotations

import asyncio
import logging

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status

from service.readiness import SERVICES, State
from service.v1 import constraint_pb2, model_pb2
from service.v1 import generation_pb2 as pb

pytestmark = pytest.mark.asyncio(loop_scope="module")


def endless(text="ab", n=None, tenant="", context=120):
    options = pb.SamplingOptions(ignore_eos=True, max_tokens=context)
    return pb.GenerateRequest(text=text, n=n, sampling=options, tenant=tenant)


def streaming(server, message, **options):
    return server.generation.GenerateStream(pb.GenerateStreamRequest(request=message), **options)


async def rest(call):
    return [event async for event in call]


@pytest.fixture(scope="module")
def slow_server(run_server):
    """A context with a server that takes 50 ms a step."""
    return lambda **options: run_server(engine={"step_s": 0.05, **options})


async def test_a_cancelled_stream_frees_everything(slow_server):
    async with slow_server() as server:
        call = streaming(server, endless(n=3))
        while not (await call.read()).HasField("delta"):
            pass
        assert server.model.engine.stats.blocks.used == 3
        call.cancel()
        await server.freed()
        await asyncio.wait_for(server.readiness.idle(), 10)


async def test_a_client_that_disconnects_frees_everything_and_is_no_error(slow_server, caplog):
    async with slow_server() as server:
        other = grpc.aio.insecure_channel(server.address)
        stub = type(server.generation)(other)
        stream = stub.GenerateStream(pb.GenerateStreamRequest(request=endless()))
        while not (await stream.read()).HasField("delta"):
            pass
        batch = stub.GenerateBatch(pb.GenerateBatchRequest(requests=[endless(), endless()]))
        await asyncio.sleep(0.2)
        assert server.model.engine.stats.blocks.used == 3
        await other.close(None)
        await server.freed()
        batch.cancel()
        await asyncio.wait_for(server.readiness.idle(), 10)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("method", ["Generate", "GenerateStream", "GenerateBatch"])
async def test_a_deadline_frees_everything(slow_server, method):
    requests = {
        "Generate": endless(),
        "GenerateStream": pb.GenerateStreamRequest(request=endless()),
        "GenerateBatch": pb.GenerateBatchRequest(requests=[endless(), endless()]),
    }
    async with slow_server() as server:
        call = getattr(server.generation, method)(requests[method], timeout=0.5)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await (rest(call) if method == "GenerateStream" else call)
        assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        await server.freed()


async def test_the_deadline_is_kept_by_a_timer_while_the_engine_says_nothing(run_server, fake, caplog):
    async with run_server() as server:
        with caplog.at_level(logging.INFO, "service.interceptor"):
            call = streaming(server, endless(tenant=fake.HANG), timeout=0.5)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await rest(call)
            assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
            await asyncio.wait_for(server.readiness.idle(), 5)
        server.model.engine.kill()
        assert {record.code for record in caplog.records} <= {"DEADLINE_EXCEEDED", "CANCELLED"}


async def test_a_deadline_in_the_past_is_exceeded_at_once(server):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await server.generation.Generate(endless(), timeout=-1)
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    await server.freed()


async def test_a_full_queue_says_when_to_come_back(slow_server):
    async with slow_server(max_live=1) as server:
        first = streaming(server, endless())
        await first.read()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await server.generation.Generate(endless())
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        retry = error_details_pb2.RetryInfo()
        assert any(detail.Unpack(retry) for detail in rpc_status.from_call(caught.value).details)
        assert retry.retry_delay.ToMilliseconds() == 2500
        first.cancel()


async def test_a_slow_reader_holds_up_nobody_and_loses_nothing(run_server):
    async with run_server(engine={"context_length": 8192}) as server:
        slow = streaming(server, endless(context=8000))
        await anext(aiter(slow))
        responses = await asyncio.gather(*(server.generation.Generate(pb.GenerateRequest(text="ab")) for _ in range(5)))
        assert {response.samples[0].text for response in responses} == {"ab"}
        assert sum(len(event.delta.token_ids) for event in await rest(slow)) == 8000


async def test_a_flood_of_tokenising_starves_neither_a_stream_nor_a_new_prompt(run_server):
    """Order of events, not times: the stream is over while most of the flood still waits."""
    async with run_server(engine={"step_s": 0.002}) as server:
        text = "the quick brown fox jumps over the lazy dog " * 20_000
        flood = [
            asyncio.create_task(_awaited(server.models.Tokenize(model_pb2.TokenizeRequest(text=text))))
            for _ in range(30)
        ]
        await asyncio.wait(flood, return_when=asyncio.FIRST_COMPLETED)
        events = await rest(streaming(server, endless(context=100)))
        deltas = [event for event in events if event.HasField("delta")]
        assert sum(len(event.delta.token_ids) for event in deltas) == 100
        assert len(deltas) > 10
        assert sum(task.done() for task in flood) < 25
        for task in flood:
            task.cancel()


async def _awaited(call):
    return await call


async def test_an_unexpected_error_is_internal_with_an_id_and_the_server_goes_on(run_server, monkeypatch, caplog):
    async with run_server() as server:
        monkeypatch.setattr(type(server.model.tokenizer), "encode_prompt", _broken)
        with caplog.at_level(logging.ERROR), pytest.raises(grpc.aio.AioRpcError) as caught:
            await server.generation.Generate(pb.GenerateRequest(text="ab"))
        assert caught.value.code() == grpc.StatusCode.INTERNAL
        assert "secret" not in caught.value.details()
        assert any(
            record.error_id in caught.value.details() for record in caplog.records if hasattr(record, "error_id")
        )
        batch = pb.GenerateBatchRequest(requests=[pb.GenerateRequest(text="ab")])
        (result,) = (await server.generation.GenerateBatch(batch)).results
        assert result.error.code == grpc.StatusCode.INTERNAL.value[0]
        assert "secret" not in result.error.message
        tokens = pb.GenerateRequest(tokens=pb.TokenPrompt(ids=[70]))
        assert (await server.generation.Generate(tokens)).samples[0].usage.prompt_tokens == 1


async def _broken(*_arguments, **_options):
    raise RuntimeError("secret")


async def test_a_dead_engine_fails_calls_as_unavailable(run_server, fake):
    async with run_server(engine={"step_s": 0.01}) as server:
        running = streaming(server, endless())
        await anext(aiter(running))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await server.generation.Generate(endless(tenant=fake.CRASH))
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await rest(running)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        assert await asyncio.wait_for(server.model.engine.failure(), 5)


@pytest.mark.parametrize("state", [State.STARTING, State.DRAINING, State.FAILED])
async def test_every_call_is_unavailable_and_health_not_serving_in_other_states(run_server, state):
    async with run_server() as server:
        health = health_pb2_grpc.HealthStub(server.channel)
        for service in SERVICES:
            answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        await server.readiness.enter(state)
        for service in SERVICES:
            answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
            assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING
        calls = [
            server.generation.Generate(pb.GenerateRequest(text="ab")),
            server.generation.GenerateStream(pb.GenerateStreamRequest()).read(),
            server.generation.GenerateBatch(pb.GenerateBatchRequest()),
            server.constraint.Compile(constraint_pb2.CompileRequest()),
            server.models.ListModels(model_pb2.ListModelsRequest()),
            server.models.Tokenize(model_pb2.TokenizeRequest()),
            server.models.Detokenize(model_pb2.DetokenizeRequest()),
        ]
        for call in calls:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
            assert caught.value.details() == state.value


async def test_health_watchers_hear_of_a_change(run_server):
    async with run_server() as server:
        watch = health_pb2_grpc.HealthStub(server.channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        await server.readiness.enter(State.DRAINING)
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        watch.cancel()
