"""GenerationService: whole answers, streams, batches.

Invariant: a whole answer, a stream and an item of a batch are the same run, read in three ways.
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from decoding.errors import InvalidRequestError
from service.answer import WholeAnswer, to_wire
from service.errors import field_of, fields_under, to_status
from service.limits import check_at_most
from service.readiness import Readiness
from service.run import admitted
from service.serving_model import ServingModel
from service.v1 import generation_pb2 as pb
from service.v1 import generation_pb2_grpc

Context = grpc.aio.ServicerContext[Any, Any]


class GenerationService(generation_pb2_grpc.GenerationServiceServicer):
    """See service/v1/generation.proto."""

    def __init__(self, readiness: Readiness) -> None:
        self._readiness = readiness

    async def Generate(self, request: pb.GenerateRequest, context: Context) -> pb.GenerateResponse:
        """The whole answer."""
        with self._readiness.serving() as model:
            return await _generate(request, model)

    async def GenerateStream(  # type: ignore[override] # gRPC takes a coroutine too, its stubs do not say so
        self, request: pb.GenerateStreamRequest, context: Context
    ) -> None:
        """Started, deltas, finishes.

        Writes instead of yielding: a generator that is left in a `yield` cleans up only when it is collected.
        """
        with self._readiness.serving() as model, fields_under("request"):
            async with admitted(request.request, model) as run:
                started = pb.StreamStarted(
                    request_id=run.submit.request.request_id,
                    model=model.card.name,
                    seed=run.submit.request.params.seed,
                    prompt_tokens=len(run.submit.request.prompt),
                    unenforced=to_wire(run.unenforced),
                )
                await context.write(pb.GenerateStreamResponse(started=started))
                async for update in run.updates():
                    if isinstance(update, pb.StreamDelta):
                        await context.write(pb.GenerateStreamResponse(delta=update))
                    else:
                        await context.write(pb.GenerateStreamResponse(finished=update))

    async def GenerateBatch(self, request: pb.GenerateBatchRequest, context: Context) -> pb.GenerateBatchResponse:
        """All items at once; each fails alone."""
        with self._readiness.serving() as model:
            if not request.requests:
                raise InvalidRequestError("requests", "is empty; send at least one request")
            check_at_most("requests", len(request.requests), model.limits.max_batch_items, "requests")
            async with asyncio.TaskGroup() as group:
                items = [group.create_task(_generate_item(item, model)) for item in request.requests]
            return pb.GenerateBatchResponse(results=[item.result() for item in items])


async def _generate(request: pb.GenerateRequest, model: ServingModel) -> pb.GenerateResponse:
    async with admitted(request, model) as run:
        answer = WholeAnswer(run.submit.request.n)
        async for update in run.updates():
            answer.add(update)
        return answer.response(run.submit, model.card.name, run.unenforced)


async def _generate_item(request: pb.GenerateRequest, model: ServingModel) -> pb.BatchResult:
    try:
        return pb.BatchResult(response=await _generate(request, model))
    except Exception as error:
        status = to_status(error)
        return pb.BatchResult(error=pb.BatchError(code=status.code, message=status.message, field=field_of(error)))
