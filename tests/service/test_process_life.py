"""The life of a server process: start-up errors, signals, a dying engine. Each test has a process of its own."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
from pathlib import Path

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from service.v1 import generation_pb2 as pb
from service.v1 import generation_pb2_grpc, model_pb2, model_pb2_grpc

NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVING = health_pb2.HealthCheckResponse.SERVING


def stream(channel, max_tokens):
    sampling = pb.SamplingOptions(max_tokens=max_tokens, ignore_eos=True, seed=1)
    message = pb.GenerateRequest(text="Once upon a time", sampling=sampling)
    return generation_pb2_grpc.GenerationServiceStub(channel).GenerateStream(pb.GenerateStreamRequest(request=message))


async def started(channel, max_tokens, count=4):
    """Iterators of streams that have begun."""
    streams = [aiter(stream(channel, max_tokens)) for _ in range(count)]
    for one in streams:
        await anext(one)
    return streams


async def rest(one):
    """(tokens, finished) of what is left of a stream."""
    tokens = finished = 0
    async for event in one:
        tokens += len(event.delta.token_ids)
        finished += event.HasField("finished")
    return tokens, finished


async def watched(channel):
    """A health watch that has seen SERVING."""
    watch = aiter(health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest()))
    assert (await anext(watch)).status == SERVING
    return watch


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_running_requests_end_and_refuses_new_ones(serve, number):
    with serve() as server:
        async with grpc.aio.insecure_channel(server.ready().address) as channel:
            streams = await started(channel, 200)
            watch = await watched(channel)
            # To the whole group, as a terminal does: the engine must not take it for itself.
            os.killpg(server.process.pid, number)
            assert (await anext(watch)).status == NOT_SERVING
            with pytest.raises(grpc.aio.AioRpcError, match="shutting down") as caught:
                await anext(aiter(stream(channel, 1)))
            assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
            assert await asyncio.gather(*map(rest, streams)) == [(200, 1)] * 4
        assert await asyncio.to_thread(server.ended) == 0


async def test_what_does_not_end_in_time_is_cut_off(serve):
    with serve("--drain-seconds", "0.2") as server:
        async with grpc.aio.insecure_channel(server.ready().address) as channel:
            streams = await started(channel, 1000)
            server.process.terminate()
            for one in streams:
                with pytest.raises(grpc.aio.AioRpcError, match="shut down before the request ended") as caught:
                    await rest(one)
                assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        assert await asyncio.to_thread(server.ended) == 0


async def test_a_second_signal_ends_it_at_once(serve):
    with serve() as server:
        async with grpc.aio.insecure_channel(server.ready().address) as channel:
            engine = server.engine
            await started(channel, 1000)
            watch = await watched(channel)
            server.process.terminate()
            assert (await anext(watch)).status == NOT_SERVING
            server.process.terminate()
            assert await asyncio.to_thread(server.ended) == 128 + signal.SIGTERM
            assert not engine.is_running() or engine.status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize(("number", "flags"), [(signal.SIGKILL, ()), (signal.SIGSTOP, ("--stall-seconds", "2"))])
async def test_a_dead_or_stuck_engine_turns_health_red_and_ends_the_server(serve, number, flags):
    with serve(*flags) as server:
        async with grpc.aio.insecure_channel(server.ready().address) as channel:
            streams = await started(channel, 1000)
            watch = await watched(channel)
            server.engine.send_signal(number)
            assert (await anext(watch)).status == NOT_SERVING
            for one in streams:
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await rest(one)
                assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await anext(aiter(stream(channel, 1)))
            assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        assert await asyncio.to_thread(server.ended) == 3
        assert any("the engine died" in line for line in server.errors)


async def test_a_machine_that_was_suspended_goes_on_where_it_stopped(serve):
    with serve("--stall-seconds", "1") as server:
        async with grpc.aio.insecure_channel(server.ready().address) as channel:
            streams = await started(channel, 300)
            os.killpg(server.process.pid, signal.SIGSTOP)
            await asyncio.sleep(3)
            os.killpg(server.process.pid, signal.SIGCONT)
            assert await asyncio.gather(*map(rest, streams)) == [(300, 1)] * 4
        server.process.terminate()
        assert await asyncio.to_thread(server.ended) == 0


async def test_while_it_loads_health_is_red_and_a_signal_ends_it(serve):
    with serve() as server:
        address = (await asyncio.to_thread(server.wait_for, r"^listening on (\S+)"))[1]
        async with grpc.aio.insecure_channel(address) as channel:
            answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
            assert answer.status == NOT_SERVING
            with pytest.raises(grpc.aio.AioRpcError, match="still loading") as caught:
                await model_pb2_grpc.ModelServiceStub(channel).ListModels(model_pb2.ListModelsRequest())
            assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        server.process.terminate()
        assert await asyncio.to_thread(server.ended) == 0
        assert server.lines[-1] == "stopped while loading"


def test_start_up_is_told_phase_by_phase_on_standard_output(serve):
    with serve() as server:
        server.ready()
        phases = [line.split(maxsplit=2) for line in server.lines if line.startswith(" ")]
        assert [unit for _, unit, _ in phases] == ["s"] * len(phases)
        assert {name.partition(",")[0] for _, _, name in phases} == {
            "model files",
            "tokenizer",
            "constraint compiler",
            "engine",
        }
        libraries = [Path(f"/proc/{pid}/maps").read_text() for pid in (server.engine.pid, server.process.pid)]
        assert ["libtorch" in maps for maps in libraries] == [True, False]  # the server's process does without
        assert server.lines[-1] == f"ready on {server.address} with {server.lines[-1].split()[-1]}"


def test_listening_beyond_the_machine_is_warned_of(serve):
    with serve("--address", "0.0.0.0:0", "--model", "/no/such/model") as server:
        assert any("without authentication" in line for line in end_of(server)[1].splitlines())
    with serve("--model", "/no/such/model") as server:
        assert "without authentication" not in end_of(server)[1]


def end_of(server):
    return server.ended(240), "\n".join(server.errors)


@pytest.mark.parametrize("flag", ["--address", "--metrics-port"])
def test_a_port_in_use_ends_the_start_with_code_1(serve, flag):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with serve(flag, f"127.0.0.1:{port}" if flag == "--address" else str(port)) as server:
            code, errors = end_of(server)
    assert code == 1
    assert f"127.0.0.1:{port}" in errors
    assert f"choose {'one with' if flag == '--address' else 'another'} {flag}" in errors
    assert "Traceback" not in errors


def test_a_model_that_does_not_exist_ends_the_start_with_code_1(serve):
    with serve("--model", "/no/such/model") as server:
        code, errors = end_of(server)
    assert code == 1
    assert "there is no model '/no/such/model'" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
def test_a_corrupted_file_ends_the_start_with_code_1_and_its_name(serve, tiny_model_dir, tmp_path, name):
    directory = shutil.copytree(tiny_model_dir(), tmp_path / "model")
    data = (directory / name).read_bytes()
    (directory / name).write_bytes(data[: len(data) // 2])
    with serve("--model", str(directory)) as server:
        code, errors = end_of(server)
    assert code == 1
    assert name in errors
    assert "Traceback" not in errors
