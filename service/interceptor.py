"""What every call of our services passes through: its deadline, the translation of errors, one line in the log.

Invariant: a call that fails ends with a status of `service.errors`, whatever was raised.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from google.rpc import code_pb2
from grpc_status import rpc_status

from decoding.errors import InvalidRequestError
from service.errors import DeadlineError, to_status

log = logging.getLogger(__name__)

OUR_METHODS = "/espalier."

Method = Callable[[Any, grpc.aio.ServicerContext[Any, Any]], Awaitable[Any]]


class StatusInterceptor(grpc.aio.ServerInterceptor):
    """Wraps the methods of our own services and leaves health, reflection and channelz as they are."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """The method's handler, guarded."""
        handler = await continuation(handler_call_details)
        name = handler_call_details.method
        if handler is None or not name.startswith(OUR_METHODS):
            return handler
        assert not handler.request_streaming
        read, write = handler.request_deserializer, handler.response_serializer
        # Without a deserialiser the bytes come to us, and one that fails is an error like any other.
        if handler.response_streaming:
            guarded = _guarded(handler.unary_stream, read, name)
            return grpc.unary_stream_rpc_method_handler(guarded, response_serializer=write)
        guarded = _guarded(handler.unary_unary, read, name)
        return grpc.unary_unary_rpc_method_handler(guarded, response_serializer=write)


def _guarded(method: Method, read: Callable[[bytes], Any], name: str) -> Method:
    async def guarded(data: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        start = time.perf_counter()
        code = "CANCELLED"
        try:
            response = await _within_deadline(method, _parse(read, data), context)
            code = "OK"
        except Exception as error:
            if context.cancelled():  # nobody is there to be told; what failed was the writing
                raise
            status = to_status(error)
            code = code_pb2.Code.Name(status.code)
            final = rpc_status.to_status(status)
            try:
                await context.abort(final.code, final.details, final.trailing_metadata)
            except grpc.aio.InternalError:  # the transport closed the call first, as it does at the client's deadline
                raise asyncio.CancelledError from None  # which gRPC takes as the end of a call that nobody waits for
        else:
            return response
        finally:
            milliseconds = round((time.perf_counter() - start) * 1000, 1)
            log.info("call", extra={"method": name, "code": code, "ms": milliseconds})

    return guarded


def _parse(read: Callable[[bytes], Any], data: bytes) -> Any:
    try:
        return read(data)
    except DecodeError as error:
        raise InvalidRequestError("request", f"cannot be read ({error}); all text must be UTF-8") from error


async def _within_deadline(method: Method, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
    """The deadline by our own timer: the transport notices it when it next sends or receives."""
    try:
        async with asyncio.timeout(context.time_remaining()) as timer:
            return await method(request, context)
    except TimeoutError as error:
        if timer.expired():
            raise DeadlineError("the deadline passed; allow more time or ask for fewer tokens") from error
        raise
