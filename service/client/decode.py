"""Protobuf messages, turned into the client's results.

Invariant: fields that carry the same name on both sides are copied by name, so that a field added to Usage, Limits or
Model in the .proto files needs only its namesake in the dataclass.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from google.protobuf.message import Message
from grpc_health.v1 import health_pb2

from service.client.errors import EspalierClientError, InternalError
from service.client.model import Limits, Model
from service.client.parts import TextParts, parser_of, text_parts
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
from service.client.status import error_from_batch
from service.v1 import common_pb2, constraint_pb2, generation_pb2, model_pb2

T = TypeVar("T")
Parser = Callable[[str], T]


def generation(message: generation_pb2.GenerateResponse, parser: Parser[T]) -> Generation[T]:
    """The answer to one request; InternalError where it has no sample."""
    if not message.samples:
        raise InternalError("the server answered without a sample")
    return Generation(
        request_id=message.request_id,
        model=message.model,
        samples=tuple(sample(item, parser) for item in message.samples),
        usage=usage(message.usage),
        seed=message.seed,
        unenforced=unenforced(message.unenforced),
    )


def sample(message: generation_pb2.Sample, parser: Parser[T]) -> Sample[T]:
    """One sample."""
    taken_apart = parts(message, parser)
    return Sample(
        index=message.index,
        text=message.text,
        token_ids=tuple(message.token_ids),
        logprobs=logprobs(message.logprobs),
        finish_reason=finish_reason(message.finish_reason),
        completeness=completeness(message.completeness),
        message=message.message,
        usage=usage(message.usage),
        taken_apart=taken_apart,
        parser=parser_of(parser, taken_apart),
    )


def parts(message: generation_pb2.Sample | generation_pb2.StreamFinished, parser: Parser[Any]) -> TextParts | None:
    """The text taken apart; None where it has one part only."""
    return text_parts(message.parts, parser) if message.HasField("parts") else None


def batch(
    message: generation_pb2.GenerateBatchResponse, parsers: Sequence[Parser[T]]
) -> tuple[Generation[T] | EspalierClientError, ...]:
    """One result or error per item, in the order of the items."""
    if len(message.results) != len(parsers):
        raise InternalError(f"the server answered {len(message.results)} items of {len(parsers)}")
    return tuple(
        generation(result.response, parser) if result.HasField("response") else error_from_batch(result.error)
        for result, parser in zip(message.results, parsers, strict=True)
    )


def compiled(message: constraint_pb2.CompileResponse, parser: Parser[T]) -> CompiledConstraint[T]:
    """The handle of a compiled constraint."""
    return CompiledConstraint(
        **_scalars(message, "handle", "compile_ms", "cached", "size_bytes", "states"),
        unenforced=unenforced(message.unenforced),
        parser=parser,
    )


def explanation(message: constraint_pb2.ExplainResponse) -> Explanation:
    """What a constraint means."""
    return Explanation(
        **_scalars(message, "normalised", "states", "size_bytes"),
        enforced=tuple(EnforcedKeyword(pointer=item.pointer, keyword=item.keyword) for item in message.enforced),
        unenforced=unenforced(message.unenforced),
        shortest=message.shortest if message.HasField("shortest") else None,
        shortest_tokens=message.shortest_tokens if message.HasField("shortest_tokens") else None,
    )


def models(message: model_pb2.ListModelsResponse) -> tuple[Model, ...]:
    """The served models."""
    return tuple(
        Model(
            **{
                **_namesakes(Model, item),
                "eos_token_ids": tuple(item.eos_token_ids),
                "drafters": tuple(item.drafters),
                "limits": limits(item.limits),
            }
        )
        for item in message.models
    )


def limits(message: model_pb2.Limits) -> Limits:
    """The server's limits."""
    return Limits(**_namesakes(Limits, message))


def tokenization(message: model_pb2.TokenizeResponse) -> Tokenization:
    """Ids and bytes of the tokens."""
    return Tokenization(ids=tuple(message.ids), tokens=tuple(message.tokens))


def health(message: health_pb2.HealthCheckResponse) -> Health:
    """The server's word on itself."""
    match message.status:
        case health_pb2.HealthCheckResponse.SERVING:
            return Health.SERVING
        case health_pb2.HealthCheckResponse.NOT_SERVING:
            return Health.NOT_SERVING
        case _:
            return Health.UNKNOWN


def usage(message: common_pb2.Usage) -> Usage:
    """Token counts."""
    return Usage(**{**_namesakes(Usage, message), "accepted_per_position": tuple(message.accepted_per_position)})


def unenforced(messages: Iterable[common_pb2.UnenforcedKeyword]) -> tuple[UnenforcedKeyword, ...]:
    """Keywords that are not enforced."""
    return tuple(UnenforcedKeyword(**_namesakes(UnenforcedKeyword, item)) for item in messages)


def logprobs(messages: Iterable[common_pb2.PositionLogprobs]) -> tuple[PositionLogprobs, ...]:
    """Log-probabilities, one entry per token."""
    return tuple(
        PositionLogprobs(chosen=_logprob(item.chosen), top=tuple(_logprob(other) for other in item.top))
        for item in messages
    )


def finish_reason(value: common_pb2.FinishReason.ValueType) -> FinishReason:
    """The reason of the same name; UNKNOWN for a value that this client does not know."""
    known = dict(zip(common_pb2.FinishReason.values(), common_pb2.FinishReason.keys(), strict=True))
    name = known.get(value, "").removeprefix("FINISH_REASON_")
    return FinishReason.__members__.get(name, FinishReason.UNKNOWN)


def completeness(value: common_pb2.Completeness.ValueType) -> Completeness:
    """Whether a text satisfies its constraint; a value that this client does not know counts as a prefix."""
    match value:
        case common_pb2.COMPLETENESS_UNSPECIFIED:
            return Completeness.UNCONSTRAINED
        case common_pb2.COMPLETENESS_COMPLETE:
            return Completeness.COMPLETE
        case _:
            return Completeness.VALID_PREFIX


def _logprob(message: common_pb2.TokenLogprob) -> TokenLogprob:
    return TokenLogprob(**_namesakes(TokenLogprob, message))


def _namesakes(result: type[Any], message: Message) -> dict[str, Any]:
    return _scalars(message, *(item.name for item in dataclasses.fields(result)))


def _scalars(message: Message, *names: str) -> dict[str, Any]:
    return {name: getattr(message, name) for name in names}
