"""From settings to a model that is ready to serve, phase by phase.

Invariant: what was opened here is closed by the exit stack that was handed in, also where a later phase fails.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager

from prometheus_client import start_http_server

from decoding.params import SamplingParams
from engine.request import GenerationRequest
from grammars.compiling.pool import CompilePool
from service import engine_build
from service.constraints import ConstraintCatalog
from service.engine_client import EngineClient
from service.engine_messages import Submit
from service.engine_process import EngineSetup
from service.errors import AddressError
from service.logs import configure_logging
from service.metrics import ServerMetrics
from service.serving_model import ServingModel
from service.settings import ServerSettings
from service.tokenizer import PromptTokenizer
from service.v1.common_pb2 import Constraint

Announce = Callable[[str], None]

METRICS_HOST = "127.0.0.1"


def engine_setup(settings: ServerSettings) -> EngineSetup:
    """What the engine's process needs to know."""
    config = settings.engine
    return EngineSetup(
        find=functools.partial(engine_build.find, config),
        load_tokens=engine_build.load_tokens,
        build=functools.partial(engine_build.build, config),
        configure_logging=functools.partial(configure_logging, settings.log_level, settings.log_format),
    )


async def load_model(
    settings: ServerSettings, setup: EngineSetup, stack: AsyncExitStack, announce: Announce
) -> ServingModel:
    """Start, load, warm up; each phase is announced with its seconds.

    Raises ModelLoadError, AddressError for the metrics port, UnavailableError where the compiler does not start.
    """
    with _phase("model files", announce):
        engine = await EngineClient.start(setup, stall_s=settings.stall_seconds)
        stack.push_async_callback(engine.close)
        files = await engine.files()
    with _phase("tokenizer", announce):
        tokenizer = await asyncio.to_thread(PromptTokenizer, files)
        stack.callback(tokenizer.close)
        trie = await engine.tokens()
    with _phase("constraint compiler, while the engine loads", announce):
        pool = await stack.enter_async_context(CompilePool(trie, settings.compiling))
    catalog = ConstraintCatalog(pool, engine, settings.compiling)
    with _phase("engine", announce):
        card = await engine.ready()
        await _warm_up(engine, catalog)
    metrics = ServerMetrics(card.name, lambda: engine.stats)
    if settings.metrics_port is not None:
        announce(f"metrics on http://{METRICS_HOST}:{_serve_metrics(settings.metrics_port, metrics, stack)}/metrics")
    return ServingModel(
        card=card,
        vocabulary=trie.vocabulary,
        tokenizer=tokenizer,
        engine=engine,
        catalog=catalog,
        limits=settings.limits,
        constraint_limits=settings.compiling.limits,
        engine_config=settings.engine,
        metrics=metrics,
        log_prompts=settings.log_prompts,
    )


async def _warm_up(engine: EngineClient, catalog: ConstraintCatalog) -> None:
    """A free and a constrained request, so that callers find everything imported and compiled, and faults show now."""
    compiled, _ = await catalog.compile(Constraint(regex="."))
    for key in (None, catalog.define(compiled)):
        request = GenerationRequest(request_id="warm-up", prompt=(0, 0), params=SamplingParams(max_tokens=2))
        async with engine.submit(Submit(request=request, grammar_key=key)) as stream:
            async for _ in stream:
                pass


def _serve_metrics(port: int, metrics: ServerMetrics, stack: AsyncExitStack) -> int:
    """Serve Prometheus' text format; the port."""
    try:
        server, _ = start_http_server(port, addr=METRICS_HOST, registry=metrics.registry)
    except OSError as error:
        problem = f"cannot serve metrics on {METRICS_HOST}:{port}: {error.strerror}"
        raise AddressError(f"{problem}; choose another --metrics-port") from error
    stack.callback(server.server_close)
    stack.callback(server.shutdown)
    return int(server.server_port)


@contextmanager
def _phase(name: str, announce: Announce) -> Iterator[None]:
    start = time.perf_counter()
    yield
    announce(f"{time.perf_counter() - start:7.2f} s  {name}")
