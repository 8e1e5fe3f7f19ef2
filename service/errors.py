"""The one place where exceptions become gRPC status codes.

Details travel as google.rpc messages (https://google.aip.dev/193): ErrorInfo always, with the domain "espalier";
BadRequest with the path of the field; RetryInfo and QuotaFailure where waiting helps. Invariant: what an exception says
leaves the process only where it was raised on purpose.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2

from decoding.errors import (
    CapacityError,
    ConstraintError,
    EspalierError,
    InvalidRequestError,
    PreconditionError,
    UnavailableError,
    UnsupportedConstraintError,
)

log = logging.getLogger(__name__)

DOMAIN = "espalier"
MAX_TEXT_BYTES = 600
"""Size of a message or field path. A status travels in HTTP/2 trailers, percent-encoded and again in its details, and
gRPC drops trailers past 8 KiB."""


class DeadlineError(EspalierError):
    """The caller's deadline passed (gRPC: DEADLINE_EXCEEDED)."""


class AddressError(Exception):
    """The server cannot listen where it was told to; ends its start with this message."""


# The first row that an error is an instance of decides.
_STATUSES: tuple[tuple[type[EspalierError], int, str], ...] = (
    (UnsupportedConstraintError, code_pb2.UNIMPLEMENTED, "UNSUPPORTED_CONSTRAINT"),
    (ConstraintError, code_pb2.INVALID_ARGUMENT, "INVALID_CONSTRAINT"),
    (InvalidRequestError, code_pb2.INVALID_ARGUMENT, "INVALID_FIELD"),
    (CapacityError, code_pb2.RESOURCE_EXHAUSTED, "CAPACITY"),
    (PreconditionError, code_pb2.FAILED_PRECONDITION, "PRECONDITION"),
    (UnavailableError, code_pb2.UNAVAILABLE, "UNAVAILABLE"),
    (DeadlineError, code_pb2.DEADLINE_EXCEEDED, "DEADLINE"),
    (EspalierError, code_pb2.INTERNAL, "INTERNAL"),
)


def to_status(error: Exception) -> status_pb2.Status:
    """The status of a failed call. Of an unexpected exception nothing is told but the id under which it is logged."""
    if not isinstance(error, EspalierError):
        return _unexpected(error)
    code, reason = next((code, reason) for kind, code, reason in _STATUSES if isinstance(error, kind))
    return status_pb2.Status(code=code, message=_short(_message(error)), details=_details(error, reason))


def field_of(error: Exception) -> str:
    """Path of the offending field, or empty."""
    return _short(error.field) if isinstance(error, InvalidRequestError) else ""


@contextmanager
def fields_under(prefix: str) -> Iterator[None]:
    """Field paths of errors raised inside begin with ``prefix``, the message that holds the request."""
    try:
        yield
    except InvalidRequestError as error:
        error.field = f"{prefix}.{error.field}"
        raise


def _message(error: EspalierError) -> str:
    return f"{error.field}: {error.message}" if isinstance(error, InvalidRequestError) else str(error)


def _details(error: EspalierError, reason: str) -> list[AnyMessage]:
    about = error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN)
    details: list[Message] = [about]
    if isinstance(error, ConstraintError) and error.pointer:
        about.metadata["pointer"] = _short(error.pointer)
    if isinstance(error, InvalidRequestError):
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=_short(error.field), description=_short(error.message), reason=reason
        )
        details.append(error_details_pb2.BadRequest(field_violations=[violation]))
    if isinstance(error, CapacityError):
        delay = Duration()
        delay.FromMilliseconds(round(error.retry_after_s * 1000))
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
        quota = error_details_pb2.QuotaFailure.Violation(subject="server", description=_short(str(error)))
        details.append(error_details_pb2.QuotaFailure(violations=[quota]))
    return [_packed(detail) for detail in details]


def _unexpected(error: Exception) -> status_pb2.Status:
    error_id = secrets.token_hex(8)
    log.error("unexpected error", exc_info=error, extra={"error_id": error_id})
    about = error_details_pb2.ErrorInfo(reason="INTERNAL", domain=DOMAIN, metadata={"error_id": error_id})
    message = f"internal error {error_id}; the server's log has its cause under this id"
    return status_pb2.Status(code=code_pb2.INTERNAL, message=message, details=[_packed(about)])


def _packed(detail: Message) -> AnyMessage:
    packed = AnyMessage()
    packed.Pack(detail)
    return packed


def _short(text: str) -> str:
    """Messages may echo what a caller sent, of any length."""
    data = text.encode(errors="replace")
    return text if len(data) <= MAX_TEXT_BYTES else data[: MAX_TEXT_BYTES - 3].decode(errors="ignore") + "…"
