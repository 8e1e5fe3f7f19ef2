"""The one tree of exceptions that a caller can cause or must act upon.

Invariant: a message names what was wrong *and* what mends it; the service translates these types to status codes in one
place (`service.errors`). Broken invariants of our own are `AssertionError`, never one of these.
"""

from __future__ import annotations


class EspalierError(Exception):
    """Root of every error that Espalier raises on purpose."""


class InvalidRequestError(EspalierError, ValueError):
    """The caller sent something that cannot be honoured (gRPC: INVALID_ARGUMENT).

    `field` is the path of the offending field, e.g. ``sampling.temperature``; the message says problem and mend.
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message

    def __reduce__(self) -> tuple[type[InvalidRequestError], tuple[str, ...]]:
        return type(self), (self.field, self.message)


class ConstraintError(InvalidRequestError):
    """A constraint that does not parse, is impossible, or exceeds a limit.

    `pointer` is a JSON pointer into the schema.
    """

    def __init__(self, field: str, message: str, pointer: str = "") -> None:
        super().__init__(field, f"{message} (at {pointer or '/'})" if pointer else message)
        self.pointer = pointer
        self.bare_message = message

    def __reduce__(self) -> tuple[type[ConstraintError], tuple[str, ...]]:
        return type(self), (self.field, self.bare_message, self.pointer)


class UnsupportedConstraintError(ConstraintError):
    """A keyword or feature that is understood but cannot be enforced (gRPC: UNIMPLEMENTED)."""


class CapacityError(EspalierError):
    """A queue, quota or pool is full; the same request can succeed later (gRPC: RESOURCE_EXHAUSTED with RetryInfo)."""

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> tuple[type[CapacityError], tuple[str, float]]:
        return type(self), (str(self), self.retry_after_s)


class PreconditionError(EspalierError):
    """The server is not in the state that the request needs (gRPC: FAILED_PRECONDITION)."""


class UnavailableError(EspalierError):
    """The server drains, is not ready yet, or its engine is dead (gRPC: UNAVAILABLE)."""


class ModelLoadError(EspalierError):
    """A model, tokenizer or checkpoint that cannot be loaded; ends the start of a server with this message."""


class GrammarStateError(EspalierError):
    """A matcher was given an illegal token or exhausted its bound of work; it fails its own request only."""
