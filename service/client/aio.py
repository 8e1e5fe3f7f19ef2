"""The asyncio client.

Invariant: this file and `service.client.client` differ only in how they wait; what is sent and what comes back is made
in `request`, `calls`, `decode`, `events` and `status`. A client belongs to the event loop that it was made in.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, Unpack

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from service.client import decode
from service.client.calls import (
    batch_request,
    compile_request,
    detokenize_request,
    explain_request,
    stream_request,
    tokenize_request,
)
from service.client.connection import DEFAULT_ADDRESS, DEFAULT_TIMEOUT, ChannelOptions, channel_options, deadline
from service.client.constraint import ConstraintOptions
from service.client.errors import CallCancelledError, EspalierClientError
from service.client.events import Assembly, Event
from service.client.model import Model
from service.client.request import Options, Request
from service.client.results import CompiledConstraint, Explanation, Generation, Health, ParsedT_co, Tokenization
from service.client.schema_text import Schema
from service.client.status import error_from_call
from service.v1 import constraint_pb2_grpc, generation_pb2, generation_pb2_grpc, model_pb2, model_pb2_grpc

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


class AsyncClient:
    """A connection to one server, for asyncio; an asynchronous context manager.

    It is made inside a running event loop (RuntimeError otherwise) and takes the arguments of `Client`; every method
    raises the exceptions of `service.client.errors` and takes a `timeout` in seconds. Cancelling the task that waits
    for a method cancels the call on the server.
    """

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        retries: int = 0,
        credentials: grpc.ChannelCredentials | None = None,
        options: ChannelOptions = (),
    ) -> None:
        asyncio.get_running_loop()  # without one gRPC would bind the channel to a loop that never runs
        settings = channel_options(address, retries=retries, extra=options)
        if credentials is None:
            self._channel = grpc.aio.insecure_channel(address, options=settings)
        else:
            self._channel = grpc.aio.secure_channel(address, credentials, options=settings)
        self._timeout = timeout
        self._generation = generation_pb2_grpc.GenerationServiceStub(self._channel)
        self._constraint = constraint_pb2_grpc.ConstraintServiceStub(self._channel)
        self._model = model_pb2_grpc.ModelServiceStub(self._channel)
        self._health = health_pb2_grpc.HealthStub(self._channel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; calls in flight are cancelled."""
        await self._channel.close()

    async def generate(
        self,
        prompt: str | None = None,
        *,
        schema: Schema[ParsedT_co] | None = None,
        constraint: CompiledConstraint[ParsedT_co] | None = None,
        timeout: float | None = None,
        **options: Unpack[Options],
    ) -> Generation[ParsedT_co]:
        """The whole answer to one request (`Request` and `Options` say what it may hold)."""
        request = Request(prompt, schema=schema, constraint=constraint, **options)
        response = await self._call(self._generation.Generate, request.message, timeout)
        return decode.generation(response, request.parser)

    def stream(
        self,
        prompt: str | None = None,
        *,
        schema: Schema[ParsedT_co] | None = None,
        constraint: CompiledConstraint[ParsedT_co] | None = None,
        timeout: float | None = None,
        **options: Unpack[Options],
    ) -> AsyncStream[ParsedT_co]:
        """The answer as it is produced, as an asynchronous iterator of events."""
        request = Request(prompt, schema=schema, constraint=constraint, **options)
        call = self._generation.GenerateStream(stream_request(request), timeout=deadline(timeout, self._timeout))
        return AsyncStream(aiter(call), call.cancel, Assembly(request.parser, num_samples=request.num_samples))

    async def generate_batch(
        self, requests: Sequence[Request[ParsedT_co]], *, timeout: float | None = None
    ) -> tuple[Generation[ParsedT_co] | EspalierClientError, ...]:
        """Many requests in one call: a result or an error for each, in their order."""
        response = await self._call(self._generation.GenerateBatch, batch_request(requests), timeout)
        return decode.batch(response, [request.parser for request in requests])

    async def compile(
        self,
        *,
        schema: Schema[ParsedT_co] | None = None,
        model: str = "",
        timeout: float | None = None,
        **options: Unpack[ConstraintOptions],
    ) -> CompiledConstraint[ParsedT_co]:
        """Compile a constraint ahead of its use; the result goes into `constraint=` of a request."""
        message, parser = compile_request(schema=schema, model=model, **options)
        return decode.compiled(await self._call(self._constraint.Compile, message, timeout), parser)

    async def explain(
        self,
        *,
        schema: Schema[Any] | None = None,
        model: str = "",
        timeout: float | None = None,
        **options: Unpack[ConstraintOptions],
    ) -> Explanation:
        """What a constraint means: what of it is enforced, how large it is, and a shortest text that it allows."""
        message = explain_request(schema=schema, model=model, **options)
        return decode.explanation(await self._call(self._constraint.Explain, message, timeout))

    async def models(self, *, timeout: float | None = None) -> tuple[Model, ...]:
        """What the server serves, and its limits."""
        return decode.models(await self._call(self._model.ListModels, model_pb2.ListModelsRequest(), timeout))

    async def tokenize(
        self, text: str, *, add_special_tokens: bool = False, model: str = "", timeout: float | None = None
    ) -> Tokenization:
        """Token ids of a text, on request with the tokens that the tokenizer puts around a prompt."""
        message = tokenize_request(text, add_special_tokens=add_special_tokens, model=model)
        return decode.tokenization(await self._call(self._model.Tokenize, message, timeout))

    async def detokenize(
        self, ids: Sequence[int], *, skip_special_tokens: bool = False, model: str = "", timeout: float | None = None
    ) -> str:
        """Text of token ids."""
        message = detokenize_request(ids, skip_special_tokens=skip_special_tokens, model=model)
        return (await self._call(self._model.Detokenize, message, timeout)).text

    async def health(self, *, timeout: float | None = None) -> Health:
        """What the server says about itself; UnavailableError where none answers."""
        return decode.health(await self._call(self._health.Check, health_pb2.HealthCheckRequest(), timeout))

    async def _call(
        self, method: grpc.aio.UnaryUnaryMultiCallable[RequestT, ResponseT], message: RequestT, timeout: float | None
    ) -> ResponseT:
        try:
            return await method(message, timeout=deadline(timeout, self._timeout))
        except grpc.RpcError as error:
            raise error_from_call(error) from error
        except asyncio.CancelledError as error:
            if task_is_cancelled():
                raise
            raise CallCancelledError("the call was cancelled") from error


class AsyncStream(Generic[ParsedT_co]):
    """Events of one answer: an asynchronous iterator and context manager.

    Leaving the ``async with`` block, `close()`, or cancelling the task that iterates cancels the call, and the server
    frees everything that it holds for it.
    """

    def __init__(
        self,
        messages: AsyncIterator[generation_pb2.GenerateStreamResponse],
        cancel: Callable[[], object],
        assembly: Assembly[ParsedT_co],
    ) -> None:
        self._messages = messages
        self._cancel = cancel
        self._assembly = assembly
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        if self._closed:
            raise StopAsyncIteration
        try:
            event = None
            while event is None:
                event = self._assembly.take(await anext(self._messages))
        except grpc.RpcError as error:
            raise self._assembly.fail(error_from_call(error)) from error
        except asyncio.CancelledError as error:
            if task_is_cancelled():
                self._closed = True
                raise
            if self._closed:  # by another task
                raise StopAsyncIteration from error
            raise self._assembly.fail(CallCancelledError("the call was cancelled")) from error
        return event

    async def close(self) -> None:
        """End the stream for whoever iterates over it; a call that still runs is cancelled."""
        self._closed = True
        self._cancel()

    async def result(self) -> Generation[ParsedT_co]:
        """The whole answer, after the events that are still to come; CallCancelledError where `close()` cut it."""
        async for _ in self:
            pass
        return self._assembly.generation(closed=self._closed)


def task_is_cancelled() -> bool:
    """Whether asyncio's CancelledError means this task, and not just its call: gRPC raises it for both."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
