"""A gRPC server that plays a script, and both clients behind one interface, so that each test runs against either."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any, Self

import grpc
import pytest
from grpc_health.v1 import health_pb2_grpc

from service.client import AsyncClient, Client
from service.v1 import constraint_pb2_grpc, generation_pb2_grpc, model_pb2_grpc

Answer = Callable[[Any, grpc.ServicerContext], Any]


class ScriptedServer(
    generation_pb2_grpc.GenerationServiceServicer,
    constraint_pb2_grpc.ConstraintServiceServicer,
    model_pb2_grpc.ModelServiceServicer,
    health_pb2_grpc.HealthServicer,
):
    """Answers each RPC by the function of its name in `script`, and keeps every request."""

    def __init__(self) -> None:
        self.script: dict[str, Answer] = {}
        self.requests: list[Any] = []
        self.address = ""

    def play(self, name: str, answer: Any) -> None:
        self.script[name] = answer if callable(answer) else lambda request, context: answer

    def _answer(self, name: str, request: Any, context: grpc.ServicerContext) -> Any:
        self.requests.append(request)
        return self.script[name](request, context)

    def Generate(self, request, context):
        return self._answer("Generate", request, context)

    def GenerateStream(self, request, context):
        yield from self._answer("GenerateStream", request, context)

    def GenerateBatch(self, request, context):
        return self._answer("GenerateBatch", request, context)

    def Compile(self, request, context):
        return self._answer("Compile", request, context)

    def Explain(self, request, context):
        return self._answer("Explain", request, context)

    def ListModels(self, request, context):
        return self._answer("ListModels", request, context)

    def Tokenize(self, request, context):
        return self._answer("Tokenize", request, context)

    def Detokenize(self, request, context):
        return self._answer("Detokenize", request, context)

    def Check(self, request, context):
        return self._answer("Check", request, context)


class AsyncInThread:
    """AsyncClient with the interface of Client: its loop runs in a thread of its own."""

    def __init__(self, address: str, **settings: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._client = self.wait(self._make(address, settings))

    async def _make(self, address: str, settings: dict[str, Any]) -> AsyncClient:
        return AsyncClient(address, **settings)

    def wait(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def stream(self, *args: Any, **options: Any) -> Any:
        async def start() -> Any:
            return self._client.stream(*args, **options)

        return StreamInThread(self, self.wait(start()))

    def close(self) -> None:
        self.wait(self._client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **options: self.wait(getattr(self._client, name)(*args, **options))


class StreamInThread:
    def __init__(self, client: AsyncInThread, stream: Any) -> None:
        self._client, self._stream = client, stream

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        async def step() -> Any:
            return await anext(self._stream, None)

        event = self._client.wait(step())
        if event is None:
            raise StopIteration
        return event

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._client.wait(self._stream.__aexit__(*error))

    def close(self) -> None:
        self._client.wait(self._stream.close())

    def result(self) -> Any:
        return self._client.wait(self._stream.result())


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    scripted = ScriptedServer()
    running = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
    generation_pb2_grpc.add_GenerationServiceServicer_to_server(scripted, running)
    constraint_pb2_grpc.add_ConstraintServiceServicer_to_server(scripted, running)
    model_pb2_grpc.add_ModelServiceServicer_to_server(scripted, running)
    health_pb2_grpc.add_HealthServicer_to_server(scripted, running)
    scripted.address = f"127.0.0.1:{running.add_insecure_port('127.0.0.1:0')}"
    running.start()
    yield scripted
    running.stop(grace=None).wait()


@pytest.fixture(params=["sync", "asyncio"])
def connect(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Makes clients of either kind; closes them at the end."""
    made: list[Any] = []

    def make(address: str, **settings: Any) -> Any:
        made.append(Client(address, **settings) if request.param == "sync" else AsyncInThread(address, **settings))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture
def client(server: ScriptedServer, connect: Callable[..., Any]) -> Any:
    return connect(server.address)
