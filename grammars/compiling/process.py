"""The server's side of one worker process.

Invariant: a `WorkerProcess` has at most one compilation in flight, and its owner replaces it after any failure.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

from decoding.errors import ConstraintError, EspalierError, UnavailableError
from grammars.compiling.messages import HEADER_BYTES, Order, Reply, frame
from grammars.compiling.result import CompilerCrashError
from grammars.compiling.worker import memory_message
from grammars.constraint import ConstraintSpec
from grammars.limits import ConstraintLimits

START_TIMEOUT_S = 120.0
"""Enough for a first start, in which numba compiles the walkers and caches them on disk."""


class WorkerTimeoutError(ConstraintError):
    """The wall-time limit struck; whether it would again depends on load."""


class WorkerProcess:
    """One running worker.

    It is started as a program of its own: forking a process with threads of torch and grpc is unsound, and
    multiprocessing's spawn would import the server's main module again.
    """

    def __init__(self, process: Process, limits: ConstraintLimits) -> None:
        self._process = process
        self._limits = limits

    @classmethod
    async def launch(cls, limits: ConstraintLimits) -> WorkerProcess:
        """Start the program, with this process's import path; it waits for `set_up`.

        Raises UnavailableError where the machine refuses another process, or cannot bound one as `worker` needs it.
        """
        if sys.platform != "linux":
            raise UnavailableError("compile workers are bounded by means of Linux; serve from a Linux machine")
        import_path = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
        single_threaded = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS"), "1")
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "grammars.compiling.worker"),
                stdin=PIPE,
                stdout=PIPE,
                env=os.environ | single_threaded | {"PYTHONPATH": import_path},
            )
        except OSError as error:
            raise UnavailableError(f"a compile worker did not start: {error}") from error
        return cls(process, limits)

    async def set_up(self, setup_frame: bytes) -> None:
        """Send the frame of a `Setup` and wait until the worker is warm; raises UnavailableError if it never is."""
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await self._send(setup_frame)
                await self._receive()
        except (TimeoutError, EOFError) as error:
            raise UnavailableError(f"a compile worker did not start: {error!r}; see its standard error") from error

    @property
    def is_alive(self) -> bool:
        """False once the process is known to have ended."""
        return self._process.returncode is None

    async def carry_out(self, order: Order) -> Reply:
        """The worker's own reply. After any exception the worker is of no more use: `kill` it.

        Raises WorkerTimeoutError past the wall-time limit, ConstraintError where it died of its other limits, and
        CompilerCrashError where it died of anything else.
        """
        spec = order.spec
        try:
            async with asyncio.timeout(self._limits.wall_s):
                await self._send(frame(order))
                return await self._receive()
        except TimeoutError as error:
            seconds = f"{self._limits.wall_s:g} s"
            raise WorkerTimeoutError(spec.field, f"did not compile within {seconds}; simplify it or retry") from error
        except EOFError as error:
            raise self._death(spec, await self._process.wait()) from error

    async def kill(self) -> None:
        """End the process, whatever it does, and wait until it is gone."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    def _death(self, spec: ConstraintSpec, status: int) -> EspalierError:
        if status == -signal.SIGXCPU:
            seconds = self._limits.cpu_s
            return ConstraintError(spec.field, f"needs more than {seconds} s of processor time to compile; simplify it")
        if status == -signal.SIGABRT:  # how native code ends where an allocation fails
            return ConstraintError(spec.field, memory_message(self._limits.memory_bytes))
        return CompilerCrashError(f"{spec.field}: the compile worker died with exit status {status}")

    async def _send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(data)
            await self._process.stdin.drain()
        except ConnectionError as error:
            raise EOFError from error

    async def _receive(self) -> Reply:
        assert self._process.stdout is not None
        header = await self._process.stdout.readexactly(HEADER_BYTES)
        body = await self._process.stdout.readexactly(int.from_bytes(header, "little"))
        reply = pickle.loads(body)  # noqa: S301 - from our own child process
        assert isinstance(reply, Reply)
        return reply
