"""Every count and size that the service bounds before the engine sees a request.

Constraints have limits of their own (`grammars.limits`), and so has the queue (`engine.config`). Invariant: a request
within these limits is parsed, tokenised and rendered in bounded time and memory.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from decoding.errors import InvalidRequestError
from decoding.params import MAX_LOGPROBS


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLimits:
    """Bounds of one request or call. Each is a flag of `espalier serve` and a field of the protobuf message Limits.

    Attributes:
        max_samples: largest n of a request.
        max_batch_items: most requests of one GenerateBatch.
        max_stop_strings: most stop strings of a request.
        max_stop_string_bytes: size of one stop string in UTF-8.
        max_logprobs: largest logprobs of a request, at most 20.
        max_text_bytes: size of a prompt's text, of all chat messages or all bad words together, or of a text to
            tokenise, in UTF-8; and the most ids to detokenise.
        max_chat_messages: most messages of a chat prompt.
        max_tenant_bytes: size of a tenant's name in UTF-8.
        max_message_bytes: size of a request message; gRPC itself refuses larger ones.
        max_concurrent_rpcs: calls in progress; gRPC itself refuses more with RESOURCE_EXHAUSTED.
    """

    max_samples: int = 16
    max_batch_items: int = 64
    max_stop_strings: int = 16
    max_stop_string_bytes: int = 256
    max_logprobs: int = MAX_LOGPROBS
    max_text_bytes: int = 1 << 20
    max_chat_messages: int = 512
    max_tenant_bytes: int = 128
    max_message_bytes: int = 4 << 20
    max_concurrent_rpcs: int = 1024

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if getattr(self, field.name) < 1:
                raise InvalidRequestError(field.name, f"is {getattr(self, field.name)}; it must be at least 1")
        if self.max_logprobs > MAX_LOGPROBS:
            raise InvalidRequestError("max_logprobs", f"is {self.max_logprobs}; it must be at most {MAX_LOGPROBS}")


def check_at_most(field: str, value: int, limit: int, what: str) -> None:
    """Raise InvalidRequestError where ``value`` exceeds ``limit``; ``what`` names what was counted."""
    if value > limit:
        raise InvalidRequestError(field, f"{value} {what} exceed the limit of {limit}")
