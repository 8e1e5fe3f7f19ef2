"""What a stream yields, and how its events add up to the answer that one whole call would have given.

Invariant: an `Assembly` that has seen every event holds the same `Generation` as the Generate call would have returned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from itertools import zip_longest
from typing import ClassVar, Generic, TypeAlias, TypeVar

from service.client import decode
from service.client.errors import CallCancelledError, EspalierClientError, InternalError
from service.client.parts import TextParts, parser_of
from service.client.results import (
    Completeness,
    FinishReason,
    Generation,
    PositionLogprobs,
    Sample,
    UnenforcedKeyword,
    Usage,
)
from service.v1 import generation_pb2 as pb

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The request was accepted: always the first event."""

    text: ClassVar[str] = ""
    request_id: str
    model: str
    seed: int
    prompt_tokens: int
    unenforced: tuple[UnenforcedKeyword, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """New text of sample `index`: whole characters, empty where a token holds part of one."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[PositionLogprobs, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """Sample `index` ended; one per sample. `taken_apart` is its text in parts, see `Sample`."""

    text: ClassVar[str] = ""
    index: int
    finish_reason: FinishReason
    completeness: Completeness
    message: str
    usage: Usage
    taken_apart: TextParts | None = None


Event: TypeAlias = Started | Delta | Finished
"""Every event has a `text`, so that printing ``event.text`` of each prints the answer (of a request with n = 1)."""


class Assembly(Generic[T]):
    """Collects the events of one stream."""

    def __init__(self, parser: Callable[[str], T], *, num_samples: int) -> None:
        self._parser = parser
        self._num_samples = num_samples
        self._started: Started | None = None
        self._deltas: dict[int, list[Delta]] = {}
        self._finished: dict[int, Finished] = {}
        self._failure: EspalierClientError | None = None

    def take(self, message: pb.GenerateStreamResponse) -> Event | None:
        """Decode and keep one event; None for a kind that a newer server may send."""
        match message.WhichOneof("event"):
            case "started":
                return self._take_started(message.started)
            case "delta":
                return self._take_delta(message.delta)
            case "finished":
                return self._take_finished(message.finished)
            case _:
                return None

    def fail(self, error: EspalierClientError) -> EspalierClientError:
        """Keep the error that ended the stream, and return it."""
        self._failure = error
        return error

    @property
    def complete(self) -> bool:
        """Whether every sample is finished."""
        return self._started is not None and len(self._finished) == self._num_samples

    def generation(self, *, closed: bool = False) -> Generation[T]:
        """The whole answer.

        Raises the error that ended the stream. Where events are missing although none did: CallCancelledError if the
        stream was `closed` before its end, else InternalError.
        """
        if self._failure is not None:
            raise self._failure
        if self._started is None or not self.complete:
            if closed:
                raise CallCancelledError("the stream was closed before its end")
            raise InternalError("the stream ended before every sample was finished")
        samples = tuple(self._sample(self._finished[index]) for index in sorted(self._finished))
        return Generation(
            request_id=self._started.request_id,
            model=self._started.model,
            samples=samples,
            usage=total_usage([sample.usage for sample in samples]),
            seed=self._started.seed,
            unenforced=self._started.unenforced,
        )

    def _take_started(self, message: pb.StreamStarted) -> Started:
        self._started = Started(
            request_id=message.request_id,
            model=message.model,
            seed=message.seed,
            prompt_tokens=message.prompt_tokens,
            unenforced=decode.unenforced(message.unenforced),
        )
        return self._started

    def _take_delta(self, message: pb.StreamDelta) -> Delta:
        delta = Delta(
            index=message.index,
            text=message.text,
            token_ids=tuple(message.token_ids),
            logprobs=decode.logprobs(message.logprobs),
        )
        self._deltas.setdefault(delta.index, []).append(delta)
        return delta

    def _take_finished(self, message: pb.StreamFinished) -> Finished:
        finished = Finished(
            index=message.index,
            finish_reason=decode.finish_reason(message.finish_reason),
            completeness=decode.completeness(message.completeness),
            message=message.message,
            usage=decode.usage(message.usage),
            taken_apart=decode.parts(message, self._parser),
        )
        self._finished[finished.index] = finished
        return finished

    def _sample(self, finished: Finished) -> Sample[T]:
        deltas = self._deltas.get(finished.index, ())
        return Sample(
            index=finished.index,
            text="".join(delta.text for delta in deltas),
            token_ids=tuple(token for delta in deltas for token in delta.token_ids),
            logprobs=tuple(position for delta in deltas for position in delta.logprobs),
            finish_reason=finished.finish_reason,
            completeness=finished.completeness,
            message=finished.message,
            usage=finished.usage,
            taken_apart=finished.taken_apart,
            parser=parser_of(self._parser, finished.taken_apart),
        )


def total_usage(usages: Sequence[Usage]) -> Usage:
    """Sum over the samples of one request; their shared prompt counts once, as the first of them met it."""
    numbers = [item.name for item in fields(Usage) if item.name != "accepted_per_position"]
    total = {name: sum(getattr(usage, name) for usage in usages) for name in numbers}
    total |= {"prompt_tokens": usages[0].prompt_tokens, "cached_tokens": usages[0].cached_tokens}
    columns = zip_longest(*(usage.accepted_per_position for usage in usages), fillvalue=0)
    return Usage(**total, accepted_per_position=tuple(map(sum, columns)))
