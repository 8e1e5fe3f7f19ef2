"""Fixtures of the service's tests: a fake engine in a real process, its vocabulary, and a server around it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
from collections.abc import AsyncIterator, Callable

import grpc
import pytest
import pytest_asyncio

from engine.loading.directory import read_directory
from grammars.compiling.pool import PoolOptions
from grammars.matching.trie import TokenTrie
from grammars.vocabulary import load_vocabulary
from service.engine_client import EngineClient
from service.engine_process import EngineSetup
from service.grpc_server import make_server
from service.loading import load_model
from service.readiness import Readiness, State
from service.serving_model import ServingModel
from service.settings import ServerSettings
from service.v1 import constraint_pb2_grpc, generation_pb2_grpc, model_pb2_grpc
from tests.service import fake_engine
from tests.service.server_process import ServerProcess, server_process


@pytest.fixture(scope="session")
def fake():
    """The module of the fake engine."""
    return fake_engine


@pytest.fixture(scope="session")
def model_files(tiny_model_dir):
    return read_directory(tiny_model_dir(), "fake")


@pytest.fixture(scope="session")
def trie(model_files) -> TokenTrie:
    return TokenTrie.of(load_vocabulary(model_files.tokenizer, eos_token_ids=model_files.eos_token_ids, size=520))


@pytest.fixture(scope="session")
def engine_setup(trie, model_files) -> Callable[..., EngineSetup]:
    """Factory: ``engine_setup(build=None, files=None, **arguments of FakeEngine)``."""

    def make(build=None, files=None, **options) -> EngineSetup:
        build = build or functools.partial(fake_engine.build, **options)
        configure = functools.partial(logging.basicConfig, level=logging.INFO)
        return EngineSetup(
            find=functools.partial(fake_engine.same, files or model_files),
            load_tokens=functools.partial(fake_engine.same, trie),
            build=build,
            configure_logging=configure,
        )

    return make


@pytest.fixture
async def start_engine(engine_setup) -> AsyncIterator[Callable[..., EngineClient]]:
    """Factory of running engines: ``await start_engine(stall_s=60, **arguments of engine_setup)``."""
    clients = []

    async def start(*, stall_s: float = 60.0, **options) -> EngineClient:
        clients.append(client := await EngineClient.start(engine_setup(**options), stall_s=stall_s))
        await client.ready()
        return client

    yield start
    for client in clients:
        await client.close()


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunningServer:
    """A server on a free port of this process, and a channel to it."""

    address: str
    channel: grpc.aio.Channel
    readiness: Readiness
    model: ServingModel
    generation: generation_pb2_grpc.GenerationServiceStub
    constraint: constraint_pb2_grpc.ConstraintServiceStub
    models: model_pb2_grpc.ModelServiceStub

    async def freed(self) -> None:
        """Wait until no request holds a block."""
        for _ in range(1000):
            if self.model.engine.stats.blocks.used == 0:
                return
            await asyncio.sleep(0.01)
        pytest.fail("blocks were not freed")


@pytest.fixture(scope="session")
def run_server(engine_setup) -> Callable[..., contextlib.AbstractAsyncContextManager[RunningServer]]:
    """Factory of contexts: ``async with run_server(limits=..., files=..., engine={...}) as server``."""

    @contextlib.asynccontextmanager
    async def run(*, files=None, engine=None, channel_options=(), **settings) -> AsyncIterator[RunningServer]:
        settings.setdefault("compiling", PoolOptions(workers=1))
        settings = ServerSettings(address="127.0.0.1:0", **settings)
        readiness = Readiness()
        await readiness.enter(State.STARTING)
        server, address = make_server(settings, readiness)
        await server.start()
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(server.stop, 0.2)
            setup = engine_setup(files=files, **(engine or {}))
            model = await load_model(settings, setup, stack, lambda line: None)
            await readiness.enter(State.SERVING, model)
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(address, options=channel_options))
            yield RunningServer(
                address=address,
                channel=channel,
                readiness=readiness,
                model=model,
                generation=generation_pb2_grpc.GenerationServiceStub(channel),
                constraint=constraint_pb2_grpc.ConstraintServiceStub(channel),
                models=model_pb2_grpc.ModelServiceStub(channel),
            )

    return run


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(run_server) -> AsyncIterator[RunningServer]:
    """One server for a whole module; its tests carry ``pytest.mark.asyncio(loop_scope="module")``."""
    async with run_server(engine={"step_s": 0.001}) as running:
        yield running


@pytest.fixture(scope="session")
def tiny_flags(tiny_model_dir) -> list[str]:
    """Flags of `espalier serve` for the tiny model, on one thread and with a small cache."""
    options = {
        "--model": str(tiny_model_dir()),
        "--device": "cpu",
        "--dtype": "float32",
        "--threads": "1",
        "--kv-cache-tokens": "8192",
        "--compile-workers": "1",
        "--metrics-port": "0",
    }
    return [part for pair in options.items() for part in pair]


@pytest.fixture(scope="session")
def serve_any() -> Callable[..., contextlib.AbstractContextManager[ServerProcess]]:
    """Factory of contexts with a real server process: ``with serve_any("--flag", "value") as server: ...``."""
    return server_process


@pytest.fixture(scope="session")
def serve(serve_any, tiny_flags) -> Callable[..., contextlib.AbstractContextManager[ServerProcess]]:
    """The same with the tiny model, unless the flags name another one."""
    return lambda *flags: serve_any(*tiny_flags, *flags)
