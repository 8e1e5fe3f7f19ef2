"""What only one of the two clients has: interrupts, garbage collection, event loops, cancelled tasks."""

from __future__ import annotations

import _thread
import asyncio
import gc
import sys
import threading
import time
import traceback

import grpc
import pytest

from service.client import AsyncClient, CallCancelledError, Client, InvalidArgumentError, UnavailableError
from service.client.connection import channel_options
from service.v1 import generation_pb2, model_pb2


@pytest.fixture
def endless(server):
    """Scripts Generate and GenerateStream to never end; gives the events of their begin and end."""
    begun, ended = threading.Event(), threading.Event()

    def generate(request, context):
        context.add_callback(ended.set)
        begun.set()
        ended.wait(30)
        return generation_pb2.GenerateResponse()

    def stream(request, context):
        context.add_callback(ended.set)
        yield generation_pb2.GenerateStreamResponse(started=generation_pb2.StreamStarted())
        begun.set()
        ended.wait(30)

    server.play("Generate", generate)
    server.play("GenerateStream", stream)
    return begun, ended


def test_an_interrupt_cancels_a_waiting_call_on_the_server(server, endless):
    _, ended = endless
    interrupt = threading.Thread(target=_interrupt_once_waiting, args=[threading.get_ident()])
    with Client(server.address) as client:
        interrupt.start()
        interrupted = False
        try:
            client.generate("p")
        except KeyboardInterrupt:
            interrupted = True
        interrupt.join()
        assert interrupted
        assert ended.wait(10)


def _interrupt_once_waiting(thread: int) -> None:
    while "result" not in {frame.f_code.co_name for frame, _ in traceback.walk_stack(sys._current_frames()[thread])}:
        time.sleep(0.01)
    _thread.interrupt_main()


def test_a_stream_that_nobody_holds_is_cancelled(server, endless):
    _, ended = endless
    with Client(server.address) as client:
        for _ in client.stream("p"):
            break
        gc.collect()
        assert ended.wait(10)


def test_a_stream_closed_by_another_thread_just_ends(server, endless):
    begun, ended = endless
    with Client(server.address) as client:
        stream = client.stream("p")
        closing = threading.Thread(target=lambda: begun.wait(10) and stream.close())
        closing.start()
        assert len(list(stream)) <= 1
        closing.join()
        assert ended.wait(10)
        with pytest.raises(CallCancelledError):
            stream.result()


async def test_a_stream_closed_by_another_task_just_ends(server, endless):
    begun, ended = endless
    async with AsyncClient(server.address) as client:
        stream = client.stream("p")
        reading = asyncio.create_task(_collect(stream))
        await asyncio.to_thread(begun.wait, 10)
        await stream.close()
        assert len(await reading) <= 1
        assert await asyncio.to_thread(ended.wait, 10)
        with pytest.raises(CallCancelledError):
            await stream.result()


async def _collect(stream):
    return [event async for event in stream]


@pytest.mark.parametrize("what", ["generate", "stream"])
async def test_cancelling_a_task_cancels_its_call(server, endless, what):
    begun, ended = endless
    async with AsyncClient(server.address) as client:
        stream = client.stream("p")
        task = asyncio.create_task(client.generate("p") if what == "generate" else stream.result())
        await asyncio.to_thread(begun.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()
        assert await asyncio.to_thread(ended.wait, 10)
        if what == "stream":
            with pytest.raises(CallCancelledError):
                await stream.result()
        await stream.close()


async def test_asyncio_s_own_timeout_works(server, endless):
    async with AsyncClient(server.address) as client:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await client.generate("p")
    assert await asyncio.to_thread(endless[1].wait, 10)


async def test_calls_run_concurrently(server):
    barrier = threading.Barrier(3)

    def answer(request, context):
        barrier.wait(20)
        return generation_pb2.GenerateResponse(samples=[generation_pb2.Sample(text=request.text)])

    server.play("Generate", answer)
    async with AsyncClient(server.address) as client:
        answers = await asyncio.gather(*(client.generate(f"p{number}") for number in range(3)))
    assert [answer.text for answer in answers] == ["p0", "p1", "p2"]


def test_an_async_client_needs_a_running_loop():
    with pytest.raises(RuntimeError, match="no running event loop"):
        AsyncClient("127.0.0.1:1")


@pytest.mark.parametrize("retries", [-1, 5])
def test_retries_are_bounded(retries):
    with pytest.raises(InvalidArgumentError, match="retries"):
        Client("127.0.0.1:1", retries=retries)


@pytest.mark.parametrize(
    ("address", "proxied"),
    [
        ("127.0.0.1:50051", 0),
        ("localhost:1", 0),
        ("[::1]:1", 0),
        ("unix:/tmp/s", 0),
        ("llm.example:443", 1),
        ("dns:///a:1", 1),
    ],
)
def test_loopback_traffic_takes_no_proxy(address, proxied):
    options = channel_options(address, retries=0, extra=[("grpc.keepalive_time_ms", 1000)])
    assert ("grpc.enable_http_proxy", proxied) in options
    assert ("grpc.keepalive_time_ms", 1000) in options


def test_a_proxy_in_the_environment_does_not_take_loopback_traffic(server, connect, monkeypatch):
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("no_proxy", "no_grpc_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    server.play("ListModels", model_pb2.ListModelsResponse())
    assert connect(server.address).models() == ()
    with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:1"):  # the caller's own channel options win
        connect(server.address, options=[("grpc.enable_http_proxy", 1)]).models()


def test_credentials(server, connect):
    server.play("ListModels", model_pb2.ListModelsResponse())
    client = connect(server.address, credentials=grpc.ssl_channel_credentials())
    with pytest.raises(UnavailableError, match=r"(?i)ssl|tls|handshake"):
        client.models()  # the scripted server speaks plain text, so a client that is refused did speak TLS
    assert server.requests == []
