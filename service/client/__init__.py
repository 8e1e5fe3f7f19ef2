"""The Python client, sync and asyncio.

Invariant: importing it, and the bare install, need neither torch nor numpy nor any other part of the server; no
protobuf type is part of its interface.
"""

from service.client.aio import AsyncClient, AsyncStream
from service.client.client import Client, Stream
from service.client.connection import DEFAULT_ADDRESS, DEFAULT_TIMEOUT
from service.client.constraint import Formats, Notation, PropertyOrder, RegexDialect, Whitespace
from service.client.errors import (
    CallCancelledError,
    DeadlineExceededError,
    EspalierClientError,
    FailedPreconditionError,
    IncompleteOutputError,
    InternalError,
    InvalidArgumentError,
    ResourceExhaustedError,
    UnavailableError,
    UnsupportedError,
)
from service.client.events import Delta, Event, Finished, Started
from service.client.model import Limits, Model
from service.client.parts import TextPart, TextParts, ToolCall
from service.client.request import ChatMessage, Options, Request
from service.client.results import (
    CompiledConstraint,
    Completeness,
    EnforcedKeyword,
    Explanation,
    FinishReason,
    Generation,
    Health,
    PositionLogprobs,
    Sample,
    Tokenization,
    TokenLogprob,
    UnenforcedKeyword,
    Usage,
)
from service.client.structure import Reasoning, StructuralTags, Tag, Tool, ToolCallFormat, ToolCalls, ToolChoice

__all__ = [
    "DEFAULT_ADDRESS",
    "DEFAULT_TIMEOUT",
    "AsyncClient",
    "AsyncStream",
    "CallCancelledError",
    "ChatMessage",
    "Client",
    "CompiledConstraint",
    "Completeness",
    "DeadlineExceededError",
    "Delta",
    "EnforcedKeyword",
    "EspalierClientError",
    "Event",
    "Explanation",
    "FailedPreconditionError",
    "FinishReason",
    "Finished",
    "Formats",
    "Generation",
    "Health",
    "IncompleteOutputError",
    "InternalError",
    "InvalidArgumentError",
    "Limits",
    "Model",
    "Notation",
    "Options",
    "PositionLogprobs",
    "PropertyOrder",
    "Reasoning",
    "RegexDialect",
    "Request",
    "ResourceExhaustedError",
    "Sample",
    "Started",
    "Stream",
    "StructuralTags",
    "Tag",
    "TextPart",
    "TextParts",
    "TokenLogprob",
    "Tokenization",
    "Tool",
    "ToolCall",
    "ToolCallFormat",
    "ToolCalls",
    "ToolChoice",
    "UnavailableError",
    "UnenforcedKeyword",
    "UnsupportedError",
    "Usage",
    "Whitespace",
]
