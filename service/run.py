"""One generation request on its way through the engine: admitted, read, measured, logged.

Invariant: however its caller ends, the request leaves the engine when the block of `admitted` is left.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import grpc

from decoding.finish import FinishReason
from grammars.compiling.result import CompiledConstraint
from grammars.constraint import UnenforcedKeyword
from service.answer import AnswerReader, Update
from service.engine_messages import Submit
from service.engine_streams import EventStream
from service.metrics import RequestClock
from service.requests import read_request
from service.serving_model import ServingModel
from service.v1 import generation_pb2 as pb

log = logging.getLogger(__name__)


class Run:
    """An admitted request."""

    def __init__(
        self,
        *,
        submit: Submit,
        unenforced: Sequence[UnenforcedKeyword],
        events: EventStream,
        reader: AnswerReader,
        clock: RequestClock,
    ) -> None:
        self.submit = submit
        self.unenforced = unenforced
        self._events = events
        self._reader = reader
        self._clock = clock

    async def updates(self) -> AsyncIterator[Update]:
        """All that the samples gain, until each of them ended. What came while the caller was busy comes as one."""
        async for events in self._events:
            for event in events:
                self._clock.see(event)
            for update in self._reader.read(events):
                yield update
        self._clock.end()

    def cut(self, reason: FinishReason) -> None:
        """Count the samples that had not ended, and now never will."""
        self._clock.cut(self.submit.request.n, reason)

    def facts(self) -> dict[str, object]:
        """For the log."""
        first = self._clock.time_to_first_token
        return {
            "request_id": self.submit.request.request_id,
            "prompt_tokens": len(self.submit.request.prompt),
            "completion_tokens": self._clock.completion_tokens,
            "finished": self._clock.finished,
            "samples": self.submit.request.n,
            "ttft_ms": None if first is None else round(first * 1000, 1),
            "ms": round(self._clock.elapsed * 1000, 1),
        }


@asynccontextmanager
async def admitted(message: pb.GenerateRequest, model: ServingModel) -> AsyncIterator[Run]:
    """Read, submit, compile. Raises InvalidRequestError, ConstraintError, CapacityError, UnavailableError and so on."""
    clock = RequestClock(model.metrics)
    asked = await read_request(message, model)
    async with _counted_if_left(asked, clock), _submitted(message, asked, model) as (submit, compiled, events):
        if compiled is None:
            unenforced: Sequence[UnenforcedKeyword] = ()
            reader = AnswerReader(submit, model.vocabulary.tokens)
        else:
            unenforced = compiled.unenforced
            reader = AnswerReader(submit, model.vocabulary.spelled, compiled.layout)
        run = Run(submit=submit, unenforced=unenforced, events=events, reader=reader, clock=clock)
        try:
            yield run
        except (asyncio.CancelledError, grpc.aio.BaseError):  # left, out of time, or gone when it was written to
            run.cut(FinishReason.CANCELLED)
            raise
        except Exception:
            run.cut(FinishReason.ERROR)
            raise
        finally:
            prompt = {"prompt": str(message)} if model.log_prompts else {}
            log.info("request", extra=run.facts() | prompt)


@asynccontextmanager
async def _counted_if_left(submit: Submit, clock: RequestClock) -> AsyncIterator[None]:
    """A caller that leaves while its constraint compiles counts as one that leaves later does."""
    try:
        yield
    except asyncio.CancelledError:
        clock.cut(submit.request.n, FinishReason.CANCELLED)
        raise


@asynccontextmanager
async def _submitted(
    message: pb.GenerateRequest, submit: Submit, model: ServingModel
) -> AsyncIterator[tuple[Submit, CompiledConstraint | None, EventStream]]:
    """The request in the engine, with its constraint, which compiles while the prompt is computed."""
    if not message.constraint.ByteSize():
        async with model.engine.submit(submit) as events:
            yield submit, None, events
        return
    async with model.catalog.compiling(message.constraint) as compiling:
        if message.sampling.finish_within_limit:  # whether max_tokens will do is told before anything is computed
            model.catalog.define(await compiling.future)
        submit, is_held = replace(submit, grammar_key=compiling.key), not compiling.is_done
        async with model.engine.submit(submit, is_held=is_held) as events:
            compiled = await compiling.beside(events)
            if is_held:
                model.catalog.define(compiled)
                model.engine.release(events)
            yield submit, compiled, events
