"""Times of one streamed answer, as its caller sees them.

Invariant: all times are differences of one monotonic clock, started just before the request is sent.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from service.client import Delta, Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Attributes:
    ttft_s: seconds from sending to the first token; None where no token came.
    latency_s: seconds from sending to the last event.
    tokens_per_second: completion tokens of all samples over the latency.
    """

    ttft_s: float | None
    latency_s: float
    tokens_per_second: float


class Stopwatch:
    """Started at construction; shown every event of the stream."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._first: float | None = None
        self._last = self._start

    def see(self, event: Event) -> None:
        """Note the time of an event."""
        self._last = time.perf_counter()
        if self._first is None and isinstance(event, Delta):
            self._first = self._last

    def timing(self, completion_tokens: int) -> Timing:
        """The times of the events seen."""
        latency = self._last - self._start
        return Timing(
            ttft_s=None if self._first is None else self._first - self._start,
            latency_s=latency,
            tokens_per_second=completion_tokens / latency if latency else 0.0,
        )
