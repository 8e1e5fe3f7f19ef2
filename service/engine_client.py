"""The service's side of the engine: requests in, events out, and whether it lives.

Invariant: every request that was submitted ends: by its events, by an abort when its submitter leaves, or with
UnavailableError when the engine dies or makes no progress.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Self

from decoding.errors import EspalierError, ModelLoadError, UnavailableError
from engine.config import ModelCard
from engine.loading.files import ModelFiles
from engine.stats import EngineStats
from grammars.matching.trie import TokenTrie
from service.engine_child import EngineChild
from service.engine_messages import (
    Abort,
    Answer,
    BuildFailed,
    DefineGrammar,
    DropGrammar,
    Found,
    Ping,
    Ready,
    Report,
    Submit,
    Tokens,
)
from service.engine_process import EngineSetup
from service.engine_streams import EventStream


class EngineClient:
    """One engine in a process of its own: `start`, await `files`, `tokens`, `ready`, then `submit`, at last `close`."""

    def __init__(self, child: EngineChild, *, stall_s: float) -> None:
        self._child = child
        self._stall_s = stall_s
        self._loop = asyncio.get_running_loop()
        self._streams: dict[str, EventStream] = {}
        self._files: asyncio.Future[ModelFiles] = self._loop.create_future()
        self._tokens: asyncio.Future[TokenTrie] = self._loop.create_future()
        self._ready: asyncio.Future[ModelCard] = self._loop.create_future()
        self._failure: asyncio.Future[str] = self._loop.create_future()
        self._steps = 0
        self._progress_at = self._loop.time()
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._watch())]
        self.stats: EngineStats | None = None

    @classmethod
    async def start(cls, setup: EngineSetup, *, stall_s: float) -> Self:
        """Start the process.

        An engine that makes no progress for ``stall_s`` seconds while it has work, or does not answer for so long, is
        given up and killed.
        """
        return cls(await EngineChild.start(setup), stall_s=stall_s)

    @property
    def pid(self) -> int:
        """Process id of the engine."""
        return self._child.pid

    async def files(self) -> ModelFiles:
        """Wait until the model is on disk. Raises ModelLoadError."""
        return await asyncio.shield(self._files)

    async def tokens(self) -> TokenTrie:
        """Wait until the tokenizer is read; its tokens. Raises ModelLoadError."""
        return await asyncio.shield(self._tokens)

    async def ready(self) -> ModelCard:
        """Wait until the engine is built; what was loaded. Raises ModelLoadError."""
        return await asyncio.shield(self._ready)

    async def failure(self) -> str:
        """Wait until the engine is dead; why."""
        return await asyncio.shield(self._failure)

    @contextlib.asynccontextmanager
    async def submit(self, submit: Submit, *, is_held: bool = False) -> AsyncIterator[EventStream]:
        """The stream of a request's events, once it is queued. Leaving aborts what has not finished.

        ``is_held`` where its grammar is not defined yet; `release` it when it is.

        Raises what the engine refused it with, or UnavailableError.
        """
        if self._failure.done():
            raise self._death()
        request_id = submit.request.request_id
        if not self._streams:
            self._progress_at = self._loop.time()
        stream = self._streams[request_id] = EventStream(submit.request.n, is_held=is_held)
        self._child.send(submit)
        try:
            await stream.admitted()
            yield stream
        finally:
            if self._streams.pop(request_id, None) is not None and not stream.is_finished:
                self._child.send(Abort(request_id=request_id))

    def release(self, stream: EventStream) -> None:
        """A held request's grammar is defined: from now on progress is due."""
        stream.is_held = False
        self._progress_at = self._loop.time()

    def cut_off(self, error: EspalierError) -> None:
        """Fail every running request with ``error``; their submitters then leave, which aborts them."""
        for stream in self._streams.values():
            stream.fail(error)

    def define_grammar(self, key: str, packed: bytes) -> None:
        """Keep a grammar in the engine's process for the requests that are submitted after this."""
        self._child.send(DefineGrammar(key=key, packed=packed))

    def drop_grammar(self, key: str) -> None:
        """Forget a defined grammar; requests that run with it keep it."""
        self._child.send(DropGrammar(key=key))

    def kill(self) -> None:
        """End the process now, whatever it does."""
        self._child.kill()

    async def close(self) -> None:
        """End the process: one that loads by force, one that serves kindly at first. Idempotent."""
        for task in self._tasks:
            task.cancel()
        await self._child.close(kindly=self._ready.done())

    async def _listen(self) -> None:
        async for answer in self._child.answers():
            self._take(answer)
        self._fail(f"its process ended with exit code {await self._child.exit_code()}")

    def _take(self, answer: Answer) -> None:
        match answer:
            case Found():
                self._files.set_result(answer.files)
            case Tokens():
                self._tokens.set_result(answer.trie)
            case Ready():
                self._ready.set_result(answer.card)
            case BuildFailed():
                self._fail_to_start(answer.error)
            case Report():
                self._report(answer)

    def _report(self, report: Report) -> None:
        self.stats = report.stats
        is_due = any(not stream.is_held for stream in self._streams.values())
        if not is_due or report.stats.totals.steps != self._steps:
            self._steps = report.stats.totals.steps
            self._progress_at = self._loop.time()
        for request_id, refusal in report.answers:
            if stream := self._streams.get(request_id):
                stream.admit() if refusal is None else stream.fail(refusal)
        for event in report.events:
            if stream := self._streams.get(event.request_id):  # none where it was aborted meanwhile
                stream.add(event)

    async def _watch(self) -> None:
        """Give the engine up where it makes no progress. A ping has even an idle engine report."""
        await asyncio.wait([self._ready])
        self._progress_at = self._loop.time()
        while not self._failure.done():
            self._child.send(Ping())
            asked_at = self._loop.time()
            await asyncio.sleep(self._stall_s / 4)
            if self._loop.time() - asked_at > self._stall_s / 2:  # it was us who were stopped
                self._progress_at = self._loop.time()
            if self._loop.time() - self._progress_at > self._stall_s:
                self._fail(f"it made no progress for {self._stall_s:g} s with {len(self._streams)} requests to serve")
                self.kill()

    def _fail(self, reason: str) -> None:
        if self._failure.done():
            return
        self._failure.set_result(reason)
        self._fail_to_start(ModelLoadError(f"the engine could not be built: {reason}"))
        for stream in self._streams.values():
            stream.fail(self._death())
        self._streams.clear()

    def _fail_to_start(self, error: EspalierError) -> None:
        for future in (self._files, self._tokens, self._ready):
            if not future.done():
                future.set_exception(error)
                future.exception()  # so that nobody has to ask for all of them

    def _death(self) -> UnavailableError:
        return UnavailableError(f"the engine is dead ({self._failure.result()}); retry when the server was restarted")
