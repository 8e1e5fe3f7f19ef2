"""The synchronous client.

Invariant: this file and `service.client.aio` differ only in how they wait; what is sent and what comes back is made in
`request`, `constraint`, `decode`, `events` and `status`. Several threads may share a client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
from service.v1 import (
    constraint_pb2_grpc,
    generation_pb2,
    generation_pb2_grpc,
    model_pb2,
    model_pb2_grpc,
)

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


class Client:
    """A connection to one server; a context manager.

    Args:
        address: ``host:port``.
        timeout: seconds for a whole call where the call itself gives none; infinity for no deadline.
        retries: how often a call is tried again, in [0, 4], default none: only while the server is unavailable and
            nothing of an answer has arrived.
        credentials: TLS credentials of gRPC; None for plain text.
        options: further gRPC channel options.

    Every method raises the exceptions of `service.client.errors` and takes a `timeout` in seconds.
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
        settings = channel_options(address, retries=retries, extra=options)
        if credentials is None:
            self._channel = grpc.insecure_channel(address, options=settings)
        else:
            self._channel = grpc.secure_channel(address, credentials, options=settings)
        self._timeout = timeout
        self._generation = generation_pb2_grpc.GenerationServiceStub(self._channel)
        self._constraint = constraint_pb2_grpc.ConstraintServiceStub(self._channel)
        self._model = model_pb2_grpc.ModelServiceStub(self._channel)
        self._health = health_pb2_grpc.HealthStub(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; calls in flight are cancelled."""
        self._channel.close()

    def generate(
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
        response = self._call(self._generation.Generate, request.message, timeout)
        return decode.generation(response, request.parser)

    def stream(
        self,
        prompt: str | None = None,
        *,
        schema: Schema[ParsedT_co] | None = None,
        constraint: CompiledConstraint[ParsedT_co] | None = None,
        timeout: float | None = None,
        **options: Unpack[Options],
    ) -> Stream[ParsedT_co]:
        """The answer as it is produced, as an iterator of events."""
        request = Request(prompt, schema=schema, constraint=constraint, **options)
        call = self._generation.GenerateStream(stream_request(request), timeout=deadline(timeout, self._timeout))
        return Stream(iter(call), call.cancel, Assembly(request.parser, num_samples=request.num_samples))

    def generate_batch(
        self, requests: Sequence[Request[ParsedT_co]], *, timeout: float | None = None
    ) -> tuple[Generation[ParsedT_co] | EspalierClientError, ...]:
        """Many requests in one call: a result or an error for each, in their order."""
        response = self._call(self._generation.GenerateBatch, batch_request(requests), timeout)
        return decode.batch(response, [request.parser for request in requests])

    def compile(
        self,
        *,
        schema: Schema[ParsedT_co] | None = None,
        model: str = "",
        timeout: float | None = None,
        **options: Unpack[ConstraintOptions],
    ) -> CompiledConstraint[ParsedT_co]:
        """Compile a constraint ahead of its use; the result goes into `constraint=` of a request."""
        message, parser = compile_request(schema=schema, model=model, **options)
        return decode.compiled(self._call(self._constraint.Compile, message, timeout), parser)

    def explain(
        self,
        *,
        schema: Schema[Any] | None = None,
        model: str = "",
        timeout: float | None = None,
        **options: Unpack[ConstraintOptions],
    ) -> Explanation:
        """What a constraint means: what of it is enforced, how large it is, and a shortest text that it allows."""
        message = explain_request(schema=schema, model=model, **options)
        return decode.explanation(self._call(self._constraint.Explain, message, timeout))

    def models(self, *, timeout: float | None = None) -> tuple[Model, ...]:
        """What the server serves, and its limits."""
        return decode.models(self._call(self._model.ListModels, model_pb2.ListModelsRequest(), timeout))

    def tokenize(
        self, text: str, *, add_special_tokens: bool = False, model: str = "", timeout: float | None = None
    ) -> Tokenization:
        """Token ids of a text, on request with the tokens that the tokenizer puts around a prompt."""
        message = tokenize_request(text, add_special_tokens=add_special_tokens, model=model)
        return decode.tokenization(self._call(self._model.Tokenize, message, timeout))

    def detokenize(
        self, ids: Sequence[int], *, skip_special_tokens: bool = False, model: str = "", timeout: float | None = None
    ) -> str:
        """Text of token ids."""
        message = detokenize_request(ids, skip_special_tokens=skip_special_tokens, model=model)
        return self._call(self._model.Detokenize, message, timeout).text

    def health(self, *, timeout: float | None = None) -> Health:
        """What the server says about itself; UnavailableError where none answers."""
        return decode.health(self._call(self._health.Check, health_pb2.HealthCheckRequest(), timeout))

    def _call(
        self, method: grpc.UnaryUnaryMultiCallable[RequestT, ResponseT], message: RequestT, timeout: float | None
    ) -> ResponseT:
        call = method.future(message, timeout=deadline(timeout, self._timeout))
        try:
            return call.result()
        except grpc.RpcError as error:
            raise error_from_call(error) from error
        except grpc.FutureCancelledError as error:
            raise CallCancelledError("the client was closed during the call") from error
        finally:
            call.cancel()  # an interrupt leaves nothing running on the server; a call that ended is not affected


class Stream(Generic[ParsedT_co]):
    """Events of one answer: an iterator and a context manager.

    Leaving the ``with`` block, `close()`, or dropping the last reference before the end cancels the call, and the
    server frees everything that it holds for it.
    """

    def __init__(
        self,
        messages: Iterator[generation_pb2.GenerateStreamResponse],
        cancel: Callable[[], object],
        assembly: Assembly[ParsedT_co],
    ) -> None:
        self._messages = messages
        self._cancel = cancel
        self._assembly = assembly
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        if self._closed:
            raise StopIteration
        try:
            event = None
            while event is None:
                event = self._assembly.take(next(self._messages))
        except grpc.RpcError as error:
            if self._closed:  # by another thread
                raise StopIteration from error
            raise self._assembly.fail(error_from_call(error)) from error
        return event

    def close(self) -> None:
        """End the stream for whoever iterates over it; a call that still runs is cancelled."""
        self._closed = True
        self._cancel()

    def result(self) -> Generation[ParsedT_co]:
        """The whole answer, after the events that are still to come; CallCancelledError where `close()` cut it."""
        for _ in self:
            pass
        return self._assembly.generation(closed=self._closed)
