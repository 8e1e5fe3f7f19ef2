"""Compilation off the server's path: a few killable workers, a bounded queue, shared work, bounded caches.

    compile(spec) ── cache ──► done
         │            └─ refusals ──► the same error again
         └─ same key in flight? ──► wait with the others
                └─ no ──► queue (bounded) ──► idle worker ──► result to cache, refusal to refusals
                                                   └─ slow, others wait ──► slow lane, anew

Invariant: a constraint can take from the server at most one worker for `ConstraintLimits.wall_s`; whatever it does
there, other constraints, the event loop and the engine go on.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import logging
import os
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from decoding.errors import CapacityError, ConstraintError, EspalierError, InvalidRequestError, UnavailableError
from grammars.compiling.cache import BoundedCache
from grammars.compiling.dispatch import BACKENDS, compile_constraint, is_installed
from grammars.compiling.explain import explain_constraint
from grammars.compiling.messages import CompileFunction, ExplainFunction, Order, Reply, Setup, frame
from grammars.compiling.process import WorkerProcess, WorkerTimeoutError
from grammars.compiling.result import CompiledConstraint, Explanation
from grammars.constraint import ConstraintKind, ConstraintSpec
from grammars.limits import ConstraintLimits
from grammars.matching.trie import TokenTrie

_log = logging.getLogger(__name__)
_LONGEST_PAUSE_S = 30
_EXPLAINED = "explained "
"""What keys of explanations begin with."""

Result = CompiledConstraint | Explanation


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """How a pool works.

    Attributes:
        backend: "espalier", "llguidance", "outlines-core" or "xgrammar"; llguidance compiles grammars in any case.
        limits: what one constraint may cost.
        workers: processes; each compiles one constraint at a time.
        quick_s: constraints that compile longer are slow; they leave one worker to others, where there are two or more.
        max_waiting: constraints that may wait for a worker; more get CapacityError.
        cache_entries: most compiled constraints that are kept.
        cache_bytes: most bytes that they hold together in their packed form.
        refusals: most errors that are kept.
        niceness: added to the workers' own, so that they yield to the engine (0 to 19).
    """

    backend: str = "espalier"
    limits: ConstraintLimits = field(default_factory=ConstraintLimits)
    workers: int = 2
    quick_s: float = 1.0
    max_waiting: int = 64
    cache_entries: int = 512
    cache_bytes: int = 256 << 20
    refusals: int = 1024
    niceness: int = 10

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise InvalidRequestError("backend", f"is {self.backend!r}; use one of {', '.join(sorted(BACKENDS))}")
        if not is_installed(self.backend):
            mend = (
                "pip install 'espalier-llm[xgrammar]', or without triton pip install --no-deps xgrammar apache-tvm-ffi"
            )
            raise InvalidRequestError("backend", f"{self.backend} is not installed; {mend}")
        least = {
            "workers": 1,
            "max_waiting": 0,
            "cache_entries": 1,
            "cache_bytes": 1,
            "refusals": 0,
            "niceness": 0,
            "quick_s": 0,
        }
        for name, value in least.items():
            if getattr(self, name) < value:
                raise InvalidRequestError(name, f"is {getattr(self, name)}; it must be at least {value}")


@dataclass(slots=True, kw_only=True)
class _Job:
    """One compilation and who waits for it."""

    task: asyncio.Task[Result]
    waiters: int = 0
    has_worker: bool = False
    is_slow: bool = False


class CompilePool:
    """Use as an asynchronous context manager, on one event loop."""

    def __init__(
        self,
        trie: TokenTrie,
        options: PoolOptions | None = None,
        *,
        compile_function: CompileFunction = compile_constraint,
        explain_function: ExplainFunction = explain_constraint,
    ) -> None:
        self._trie = trie
        self._options = options = options or PoolOptions()
        self._setup_frame = frame(
            Setup(
                parent=os.getpid(),
                niceness=options.niceness,
                trie=trie,
                limits=options.limits,
                backend=options.backend,
                compile_function=compile_function,
                explain_function=explain_function,
                warm_up=ConstraintSpec(kind=ConstraintKind.REGEX, text="."),
            )
        )
        self._cache = BoundedCache[CompiledConstraint](max_entries=options.cache_entries, max_cost=options.cache_bytes)
        self._explained = BoundedCache[Explanation](max_entries=options.cache_entries, max_cost=options.cache_bytes)
        self._refusals = BoundedCache[EspalierError](max_entries=options.refusals, max_cost=options.refusals)
        self._jobs: dict[str, _Job] = {}
        self._idle: asyncio.Queue[WorkerProcess] = asyncio.Queue()
        self._workers: set[WorkerProcess] = set()
        self._starting: set[asyncio.Task[None]] = set()
        self._slow_lane = asyncio.Semaphore(max(1, options.workers - 1))
        self._starving = 0
        self._is_starved = asyncio.Event()
        self._mean_s = 1.0
        self._is_open = False

    async def __aenter__(self) -> Self:
        """Start the workers; raises UnavailableError where one does not come up."""
        self._starting.update(asyncio.create_task(self._start_worker()) for _ in range(self._options.workers))
        try:
            await asyncio.gather(*self._starting)
        except BaseException:
            await self.close()
            raise
        self._starting.clear()
        self._is_open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Kill the workers and wait until they are gone; compilations in flight end with UnavailableError."""
        self._is_open = False
        tasks = [*self._starting, *(job.task for job in self._jobs.values())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(worker.kill() for worker in self._workers))
        self._workers.clear()

    def key(self, spec: ConstraintSpec) -> str:
        """What a compiled ``spec`` is kept under; see `lookup`."""
        return spec.key(fingerprint=self._trie.vocabulary.fingerprint, backend=self._options.backend)

    def lookup(self, key: str) -> CompiledConstraint | None:
        """A constraint that was compiled and is still kept, or None."""
        return self._cache.get(key)

    async def find(self, spec: ConstraintSpec) -> tuple[str, CompiledConstraint | None]:
        """What ``spec`` is kept under, and its compiled form where it is kept.

        Raises ConstraintError where it is too large, or was refused before and would be again.
        """
        key = await asyncio.to_thread(self._checked_key, spec)
        return key, self._known(key)

    async def compile(self, spec: ConstraintSpec, *, key: str | None = None) -> CompiledConstraint:
        """The compiled form, from the cache where it is there. ``key`` is that of `find`, where it is known already.

        Equal constraints asked for at once are compiled once. A caller that is cancelled leaves the others' compilation
        alone; one that nobody waits for any more is dropped while it is queued, and finished where it has a worker.

        Raises ConstraintError (too large, wrong, impossible, or out of time or memory), CapacityError where the queue
        is full, CompilerCrashError, and UnavailableError while the pool is closed.
        """
        if key is None:
            key = await asyncio.to_thread(self._checked_key, spec)
        compiled = self._known(key) or await self._carried_out(key, Order(spec=spec))
        assert isinstance(compiled, CompiledConstraint)
        return compiled

    async def explain(self, spec: ConstraintSpec) -> Explanation:
        """What a constraint means; in the same workers, within the same limits, and kept alike. Raises as `compile`."""
        key = f"{_EXPLAINED}{await asyncio.to_thread(self._checked_key, spec)}"
        if (refusal := self._refusals.get(key)) is not None:
            raise copy.copy(refusal)
        explained = self._explained.get(key) or await self._carried_out(key, Order(spec=spec, explains=True))
        assert isinstance(explained, Explanation)
        return explained

    async def _carried_out(self, key: str, order: Order) -> Result:
        if not self._is_open:
            raise UnavailableError("the server is shutting down; send the request to another one")
        job = self._jobs.get(key) or self._enqueue(key, order)
        job.waiters += 1
        try:
            return await asyncio.shield(job.task)
        except asyncio.CancelledError:
            if job.task.cancelled() and not _is_cancelled():
                raise UnavailableError("the server is shutting down; send the request to another one") from None
            raise
        except EspalierError as error:
            raise copy.copy(error) from None  # each caller's own: who translates it writes its field's path into it
        finally:
            job.waiters -= 1
            if not job.waiters and not job.has_worker:
                self._forget(key, job)
                job.task.cancel()

    def _known(self, key: str) -> CompiledConstraint | None:
        """What is kept. Raises the error where that is a refusal."""
        if (compiled := self._cache.get(key)) is not None:
            return compiled
        if (refusal := self._refusals.get(key)) is not None:
            raise copy.copy(refusal)
        return None

    def _checked_key(self, spec: ConstraintSpec) -> str:
        self._options.limits.check(spec)
        return self.key(spec)

    def _enqueue(self, key: str, order: Order) -> _Job:
        waiting = sum(not job.has_worker for job in self._jobs.values()) - self._idle.qsize()
        if waiting >= self._options.max_waiting:
            raise CapacityError(
                f"{waiting} constraints wait to be compiled; retry later",
                retry_after_s=max(1.0, waiting * self._mean_s / self._options.workers),
            )
        job = self._jobs[key] = _Job(task=asyncio.create_task(self._run(key, order)))
        job.task.add_done_callback(lambda task: self._settle(key, job, task))
        return job

    async def _run(self, key: str, order: Order) -> Result:
        job = self._jobs[key]
        try:
            reply = await self._reply(job, order)
            if reply is None:
                job.is_slow = await self._slow_lane.acquire()
                reply = await self._reply(job, order)
        finally:
            if job.is_slow:
                self._slow_lane.release()
        assert reply is not None
        if reply.result is None:
            assert reply.error is not None
            raise reply.error
        return reply.result

    async def _reply(self, job: _Job, order: Order) -> Reply | None:
        """A worker's reply; None where it turned out slow and gave way to others."""
        worker = await self._take()
        job.has_worker = True
        started = time.monotonic()
        compiling = asyncio.create_task(worker.carry_out(order))
        try:
            may_stay = job.is_slow or await self._may_stay(job, compiling)
            reply = await compiling if may_stay else None
        except BaseException:
            self._replace(worker)
            raise
        finally:
            compiling.cancel()
            self._mean_s += 0.1 * (time.monotonic() - started - self._mean_s)
        if reply is None or reply.retires:
            self._replace(worker)
        else:
            self._idle.put_nowait(worker)
        job.has_worker = reply is not None
        return reply

    async def _may_stay(self, job: _Job, compiling: asyncio.Task[Reply]) -> bool:
        """Whether a compilation may go on: it is done, or there is room in the slow lane before another one starves."""
        await asyncio.wait([compiling], timeout=self._options.quick_s)
        if compiling.done():
            return True
        lane = asyncio.create_task(self._slow_lane.acquire())
        starved = asyncio.create_task(self._is_starved.wait())
        try:
            await asyncio.wait([compiling, lane, starved], return_when=asyncio.FIRST_COMPLETED)
        finally:
            starved.cancel()
            lane.cancel()
            (taken,) = await asyncio.gather(lane, return_exceptions=True)
            job.is_slow = taken is True
        return job.is_slow or compiling.done()

    def _settle(self, key: str, job: _Job, task: asyncio.Task[Result]) -> None:
        """Keep what a job came to: a result, or an error that the same constraint would meet again on an idle machine.

        The wall-time limit depends on load and a crash on more than the constraint: neither is kept.
        """
        self._forget(key, job)
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            result = task.result()
            if isinstance(result, Explanation):
                self._explained.put(key, result, cost=_size(result))
            else:
                self._cache.put(key, result, cost=len(result.packed))
        elif isinstance(error, ConstraintError) and not isinstance(error, WorkerTimeoutError):
            self._refusals.put(key, copy.copy(error), cost=1)

    def _forget(self, key: str, job: _Job) -> None:
        if self._jobs.get(key) is job:
            del self._jobs[key]

    async def _take(self) -> WorkerProcess:
        """An idle worker; those that died while they were idle are replaced."""
        self._starving += 1
        if self._idle.empty():
            self._is_starved.set()
        try:
            while not (worker := await self._idle.get()).is_alive:
                self._replace(worker)
        finally:
            self._starving -= 1
            if not self._starving:
                self._is_starved.clear()
        return worker

    def _replace(self, worker: WorkerProcess) -> None:
        if not self._is_open:
            return  # `close` is at work on all of them
        task = asyncio.create_task(self._restart(worker))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _restart(self, dead: WorkerProcess) -> None:
        await self._remove(dead)
        for attempt in itertools.count(1):
            try:
                await self._start_worker()
            except UnavailableError as error:
                _log.error("%s; attempt %d", error, attempt)
                await asyncio.sleep(min(attempt, _LONGEST_PAUSE_S))
            else:
                return

    async def _start_worker(self) -> None:
        worker = await WorkerProcess.launch(self._options.limits)
        self._workers.add(worker)
        try:
            await worker.set_up(self._setup_frame)
        except UnavailableError:
            await self._remove(worker)
            raise
        self._idle.put_nowait(worker)

    async def _remove(self, worker: WorkerProcess) -> None:
        """Kill it, and forget it only when it is gone, so that `close` misses none."""
        await worker.kill()
        self._workers.discard(worker)


def _size(explanation: Explanation) -> int:
    """About how many bytes it takes."""
    pointers = [*(item.pointer for item in explanation.enforced), *(item.pointer for item in explanation.unenforced)]
    return len(explanation.normalised) + len(explanation.shortest or "") + sum(len(item) + 200 for item in pointers)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
