"""The one tree of exceptions that the client raises on purpose.

Invariant: nothing here knows gRPC; `service.client.status` turns a failed call into one of these in one place.

    EspalierClientError
    ├── InvalidArgumentError     the request is wrong; `field` and `pointer` say where (also a ValueError)
    ├── UnsupportedError         the request is understood but cannot be enforced
    ├── ResourceExhaustedError   a queue, quota, pool or message size is full; `retry_after`
    ├── FailedPreconditionError  the server lacks the state that the request needs
    ├── DeadlineExceededError    the call's timeout passed
    ├── UnavailableError         no server there, or it drains, or its engine is dead
    ├── CallCancelledError       the call was cancelled
    ├── InternalError            a defect of the server, or a status that has no class here
    └── IncompleteOutputError    the text was cut before its constraint was satisfied; `generation`
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from service.client.results import Generation, Sample


class EspalierClientError(Exception):
    """Root of the tree. `message` is the server's or the client's own text: problem and mend."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class InvalidArgumentError(EspalierClientError, ValueError):
    """The request is wrong as it stands (gRPC: INVALID_ARGUMENT), found by the client or by the server.

    Attributes:
        field: path of the offending field, e.g. ``sampling.temperature``, where it is known.
        pointer: JSON pointer into the schema, where a schema is at fault.
    """

    def __init__(self, message: str, field: str | None = None, pointer: str | None = None) -> None:
        super().__init__(message)
        self.field = field
        self.pointer = pointer


class UnsupportedError(EspalierClientError):
    """A keyword or feature that the server cannot enforce (gRPC: UNIMPLEMENTED); `best_effort` accepts a schema anyway.

    Attributes:
        field: path of the offending field, where it is known.
        pointer: JSON pointer to the keyword in the schema, where a schema is at fault.
    """

    def __init__(self, message: str, field: str | None = None, pointer: str | None = None) -> None:
        super().__init__(message)
        self.field = field
        self.pointer = pointer


class ResourceExhaustedError(EspalierClientError):
    """A queue, quota or pool is full, or a message is too large (gRPC: RESOURCE_EXHAUSTED).

    Attributes:
        retry_after: seconds after which the same request may succeed; None where waiting does not help.
    """

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class FailedPreconditionError(EspalierClientError):
    """The server is not in the state that the request needs, e.g. it dropped a compiled constraint."""


class DeadlineExceededError(EspalierClientError):
    """The call's timeout passed; the server has stopped working on it."""


class UnavailableError(EspalierClientError):
    """No server answers at the address, it is starting or draining, or its engine is dead."""


class CallCancelledError(EspalierClientError):
    """The call was cancelled, by `close()` or by the server. (A cancelled asyncio task raises asyncio's own error.)"""


class InternalError(EspalierClientError):
    """A defect of the server, an answer that breaks the protocol, or a gRPC status that has no class of its own.

    Attributes:
        code: name of the gRPC status, e.g. ``INTERNAL`` or ``PERMISSION_DENIED``.
    """

    def __init__(self, message: str, code: str = "INTERNAL") -> None:
        super().__init__(message)
        self.code = code


class IncompleteOutputError(EspalierClientError):
    """`parsed` was read, but the text is only a prefix of what the constraint asks for.

    Attributes:
        sample: the sample that was cut: its text, finish reason and usage.
        generation: the whole result; None where `Sample.parsed` was read rather than `Generation.parsed`.
    """

    def __init__(self, sample: Sample[Any], generation: Generation[Any] | None = None) -> None:
        mend = sample.message or "raise max_tokens, or bound the strings and arrays of the schema"
        super().__init__(f"the output is incomplete (finish reason {sample.finish_reason.value}): {mend}")
        self.sample = sample
        self.generation = generation

    def __reduce__(self) -> tuple[type[IncompleteOutputError], tuple[Any, Any]]:
        return type(self), (self.sample, self.generation)
