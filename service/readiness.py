"""Whether requests are served, and who is being served: the one state that health and all services share.

    starting ──► serving ──► draining
        └───────────┴──► failed

Invariant: health says SERVING exactly while `serving` admits calls.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Iterator
from contextlib import contextmanager

from grpc_health.v1 import health, health_pb2

from decoding.errors import UnavailableError
from service.serving_model import ServingModel

SERVICES = (
    "",
    "espalier.v1.GenerationService",
    "espalier.v1.ConstraintService",
    "espalier.v1.ModelService",
)
"""Names that health knows; the empty one stands for the server."""


class State(enum.Enum):
    """What the server is doing; the values are what a refused call is told."""

    STARTING = "the server is still loading its model; retry later"
    SERVING = "the server is serving"
    DRAINING = "the server is shutting down; send the request to another one"
    FAILED = "the engine is dead and the server is about to exit; retry when it was restarted"


class Readiness:
    """Starts out as STARTING."""

    def __init__(self) -> None:
        self.health = health.aio.HealthServicer()
        self._state = State.STARTING
        self._model: ServingModel | None = None
        self._calls = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def calls(self) -> int:
        """How many calls are in progress."""
        return self._calls

    async def enter(self, state: State, model: ServingModel | None = None) -> None:
        """Move to ``state``; SERVING comes with the model. Calls in progress go on."""
        assert (model is not None) == (state is State.SERVING)
        self._state, self._model = state, model
        status = health_pb2.HealthCheckResponse
        healthy = status.SERVING if state is State.SERVING else status.NOT_SERVING
        for service in SERVICES:
            await self.health.set(service, healthy)

    @contextmanager
    def serving(self) -> Iterator[ServingModel]:
        """Count a call in for as long as it runs. Raises UnavailableError in any state but SERVING."""
        if self._model is None:
            raise UnavailableError(self._state.value)
        self._calls += 1
        self._idle.clear()
        try:
            yield self._model
        finally:
            self._calls -= 1
            if not self._calls:
                self._idle.set()

    async def idle(self) -> None:
        """Wait until no call is in progress."""
        await self._idle.wait()
