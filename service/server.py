"""The life of a server process: listen, load, serve, drain, end.

    start ─► load ─► serve ─► SIGTERM, SIGINT ─► drain ─► exit code 0
               │        └───► the engine dies ─► fail what runs ─► exit code 3
               └────────────► SIGTERM, SIGINT ─► exit code 0

Invariant: from the first signal, or from the engine's death, to the end there is a bound of time on every wait.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable
from contextlib import AsyncExitStack, suppress

from decoding.errors import UnavailableError
from service.grpc_server import make_server
from service.loading import Announce, engine_setup, load_model
from service.readiness import Readiness, State
from service.serving_model import ServingModel
from service.settings import ServerSettings

log = logging.getLogger(__name__)

LOOPBACK = ("127.", "localhost:", "[::1]:", "unix:")
ENGINE_DIED = 3
"""Exit code."""
STATUS_SECONDS = 5.0
"""How long calls that were cut off may take to tell their callers."""
CLOSE_SECONDS = 1.0
"""How long the transport may take to send what it holds; health watchers never leave by themselves."""


async def serve(settings: ServerSettings, announce: Announce) -> int:
    """Serve until a signal comes or the engine dies; the exit code.

    Raises AddressError, ModelLoadError or UnavailableError where the server cannot come up.
    """
    readiness = Readiness()
    await readiness.enter(State.STARTING)
    server, address = make_server(settings, readiness)
    await server.start()
    announce(f"listening on {address}")
    if not address.startswith(LOOPBACK):
        log.warning("listening beyond this machine without authentication", extra={"address": address})
    stopping = _on_signals()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(server.stop, CLOSE_SECONDS)
        loading = asyncio.create_task(load_model(settings, engine_setup(settings), stack, announce))
        await _first(loading, stopping)
        if not loading.done():
            announce("stopped while loading")
            loading.cancel()
            await asyncio.wait([loading])
            return 0
        model = loading.result()
        await readiness.enter(State.SERVING, model)
        announce(f"ready on {address} with {model.card.name}")
        dying = asyncio.create_task(model.engine.failure())
        await _first(dying, stopping)
        if not dying.done():
            await _drain(readiness, model, dying, settings.drain_seconds)
        if dying.done():
            log.error("the engine died", extra={"reason": dying.result()})
            await readiness.enter(State.FAILED)
            await _within(STATUS_SECONDS, readiness.idle())
        return ENGINE_DIED if dying.done() else 0


async def _drain(readiness: Readiness, model: ServingModel, dying: asyncio.Task[str], seconds: float) -> None:
    """Refuse new calls and let running ones end, up to ``seconds`` or the engine's death; then cut them off."""
    log.info("draining", extra={"calls": readiness.calls, "seconds": seconds})
    await readiness.enter(State.DRAINING)
    idle = asyncio.create_task(readiness.idle())
    await _within(seconds, _first(idle, dying))
    if not idle.done():
        log.warning("cutting off", extra={"calls": readiness.calls})
        model.engine.cut_off(UnavailableError("the server shut down before the request ended; send it to another one"))
        await _within(STATUS_SECONDS, idle)


def _on_signals() -> asyncio.Task[bool]:
    """Done once SIGTERM or SIGINT came. A second one ends the process at once; its children end with it."""
    stop = asyncio.Event()

    def handle(number: int) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, handle, number)
    return asyncio.create_task(stop.wait())


async def _first(*tasks: asyncio.Task[object]) -> None:
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)


async def _within(seconds: float, work: Awaitable[None]) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(work, seconds)
