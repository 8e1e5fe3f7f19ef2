"""The engine's process and the pipe to it, as the event loop sees them.

Two threads move messages, so that neither a full pipe nor a large pickle holds up the loop. Invariant: answers come out
in the order in which they were sent, and end when the process does.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import queue
import threading
from collections.abc import AsyncIterator
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Self

from service.engine_messages import Answer, Command, Shutdown
from service.engine_process import EngineSetup, run_engine

CLOSE_S = 5.0
"""How long the process may take to end before it is killed."""


class EngineChild:
    """One process, made by `start` on one event loop."""

    def __init__(self, process: SpawnProcess, connection: Connection) -> None:
        self._process = process
        self._loop = asyncio.get_running_loop()
        self._inbox: asyncio.Queue[Answer | None] = asyncio.Queue()
        self._outbox: queue.SimpleQueue[Command | None] = queue.SimpleQueue()
        for work in (self._receive, self._deliver):
            threading.Thread(target=work, args=(connection,), name=f"engine{work.__name__}", daemon=True).start()

    @classmethod
    async def start(cls, setup: EngineSetup) -> Self:
        """Start the process."""
        return cls(*await asyncio.to_thread(_spawn, setup))

    @property
    def pid(self) -> int:
        """Process id."""
        assert self._process.pid is not None
        return self._process.pid

    def send(self, command: Command) -> None:
        """Have a command delivered, after those before it. Does not wait."""
        self._outbox.put(command)

    async def answers(self) -> AsyncIterator[Answer]:
        """What the process says, until it ends. For one reader."""
        while (answer := await self._inbox.get()) is not None:
            yield answer

    async def exit_code(self) -> int:
        """Wait until the process ended; negative for a signal."""
        await asyncio.to_thread(self._process.join)
        assert self._process.exitcode is not None
        return self._process.exitcode

    def kill(self) -> None:
        """End the process now, whatever it does."""
        self._process.kill()

    async def close(self, *, kindly: bool) -> None:
        """End the process; ``kindly`` lets it finish its step first. Idempotent."""
        if kindly:
            self.send(Shutdown())
            await asyncio.to_thread(self._process.join, CLOSE_S)
        self.kill()
        await self.exit_code()
        self._outbox.put(None)

    def _receive(self, connection: Connection) -> None:
        """Thread: answers to the event loop, until the pipe ends."""
        with contextlib.suppress(RuntimeError):  # the loop was closed
            try:
                while True:
                    self._loop.call_soon_threadsafe(self._inbox.put_nowait, connection.recv())
            except (EOFError, OSError):
                self._loop.call_soon_threadsafe(self._inbox.put_nowait, None)

    def _deliver(self, connection: Connection) -> None:
        """Thread: commands to the process, until None or the pipe ends."""
        with contextlib.suppress(OSError):
            while (command := self._outbox.get()) is not None:
                connection.send(command)


def _spawn(setup: EngineSetup) -> tuple[SpawnProcess, Connection]:
    """Start the process. Blocks until it has read its arguments."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=run_engine, args=(theirs, setup), name="espalier-engine", daemon=True)
    process.start()
    theirs.close()  # so that the pipe ends with the process
    return process, ours
