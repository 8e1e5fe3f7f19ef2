"""A failed call, turned into an exception of `service.client.errors`.

Invariant: this is the only place where the client reads a status code or google.rpc error details (AIP-193: BadRequest,
RetryInfo, and ErrorInfo, whose metadata carries the JSON pointer into a schema).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError
from google.rpc import code_pb2, error_details_pb2
from grpc_status import rpc_status

from service.client import errors
from service.v1 import generation_pb2 as pb

PLAIN: Final[Mapping[int, type[errors.EspalierClientError]]] = MappingProxyType(
    {
        code_pb2.FAILED_PRECONDITION: errors.FailedPreconditionError,
        code_pb2.DEADLINE_EXCEEDED: errors.DeadlineExceededError,
        code_pb2.UNAVAILABLE: errors.UnavailableError,
        code_pb2.CANCELLED: errors.CallCancelledError,
    }
)
"""Codes whose exception carries a message and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """What the details of a status add to its message."""

    field: str | None = None
    pointer: str | None = None
    retry_after: float | None = None

    @classmethod
    def read(cls, packed: Iterable[AnyMessage]) -> Details:
        """Pick what the client knows out of packed details; others are left alone."""
        field = pointer = retry_after = None
        bad_request, retry, info = (
            error_details_pb2.BadRequest(),
            error_details_pb2.RetryInfo(),
            error_details_pb2.ErrorInfo(),
        )
        for detail in packed:
            if detail.Unpack(bad_request) and bad_request.field_violations:
                field = bad_request.field_violations[0].field or None
            elif detail.Unpack(retry):
                retry_after = retry.retry_delay.ToTimedelta().total_seconds()
            elif detail.Unpack(info):
                pointer = info.metadata.get("pointer")
        return cls(field=field, pointer=pointer, retry_after=retry_after)


def error_from_call(error: grpc.RpcError) -> errors.EspalierClientError:
    """The exception for a failed call, sync or asyncio: both kinds of RpcError carry code, details and metadata."""
    code: int = error.code().value[0]
    try:
        status = rpc_status.from_call(error)
        details = Details() if status is None else Details.read(status.details)
    except (
        ValueError,
        DecodeError,
    ):  # details that contradict the status, e.g. rewritten by a proxy: believe the status
        details = Details()
    return error_from_status(code, error.details() or "the call failed without a message", details)


def error_from_batch(error: pb.BatchError) -> errors.EspalierClientError:
    """The exception for one failed item of a batch."""
    return error_from_status(error.code, error.message, Details(field=error.field or None))


def error_from_status(code: int, message: str, details: Details) -> errors.EspalierClientError:
    """The exception for a google.rpc.Code."""
    match code:
        case code_pb2.INVALID_ARGUMENT:
            return errors.InvalidArgumentError(message, details.field, details.pointer)
        case code_pb2.UNIMPLEMENTED:
            return errors.UnsupportedError(message, details.field, details.pointer)
        case code_pb2.RESOURCE_EXHAUSTED:
            return errors.ResourceExhaustedError(message, details.retry_after)
        case _ if code in PLAIN:
            return PLAIN[code](message)
        case _:
            known = code in code_pb2.Code.values()
            return errors.InternalError(message, code_pb2.Code.Name(code) if known else f"CODE_{code}")
