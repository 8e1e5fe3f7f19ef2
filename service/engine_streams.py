"""What the service sees of its running requests: their events as they arrive, or why they failed.

Invariant: whoever waits on a stream wakes: by an event, by the end after the last sample's finish, or by an error.
"""

from __future__ import annotations

import asyncio

from decoding.errors import EspalierError
from engine.request import TokenEvent


class EventStream:
    """Events of one request. An asynchronous iterator: each item is everything that came since the last one."""

    def __init__(self, num_samples: int, *, is_held: bool = False) -> None:
        """With ``is_held`` the request waits for its grammar, so that no progress is due to it."""
        self.is_held = is_held
        self._unfinished = num_samples
        self._events: list[TokenEvent] = []
        self._error: EspalierError | None = None
        self._is_admitted = False
        self._changed = asyncio.Event()

    @property
    def is_finished(self) -> bool:
        """Every sample finished: the engine holds nothing for the request any more."""
        return self._unfinished == 0

    async def admitted(self) -> None:
        """Wait until the engine queued the request; raises the error with which it was refused."""
        while not self._is_admitted and self._error is None:
            await self._wait()
        if self._error is not None:
            raise self._error

    async def failed(self) -> EspalierError:
        """Wait until the request failed; why. For ever where it does not."""
        while self._error is None:
            await self._wait()
        return self._error

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> tuple[TokenEvent, ...]:
        """What came; raises the error with which the request failed, after the events before it."""
        while not self._events:
            if self.is_finished:
                raise StopAsyncIteration
            if self._error is not None:
                raise self._error
            await self._wait()
        events, self._events = tuple(self._events), []
        return events

    def admit(self) -> None:
        """The engine queued the request."""
        self._is_admitted = True
        self._changed.set()

    def add(self, event: TokenEvent) -> None:
        """The engine reported an event."""
        self._events.append(event)
        self._unfinished -= event.finish is not None
        self._changed.set()

    def fail(self, error: EspalierError) -> None:
        """Whoever waits for more gets ``error`` instead; a finished stream stays as it is."""
        self._error = error
        self._changed.set()

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()
