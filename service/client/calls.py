"""Protobuf requests of the calls that carry no `Request`, made once for both clients.

Invariant: what protobuf would refuse is refused here as an InvalidArgumentError with the field's path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Unpack

from service.client.checks import checked
from service.client.constraint import ConstraintOptions, encode_constraint
from service.client.errors import InvalidArgumentError
from service.client.request import Request
from service.client.results import ParsedT_co
from service.client.schema_text import Schema
from service.v1 import constraint_pb2, generation_pb2, model_pb2


def batch_request(requests: Iterable[Request]) -> generation_pb2.GenerateBatchRequest:
    """The items of one batch."""
    return generation_pb2.GenerateBatchRequest(requests=[request.message for request in requests])


def stream_request(request: Request) -> generation_pb2.GenerateStreamRequest:
    """One request whose answer is streamed."""
    return generation_pb2.GenerateStreamRequest(request=request.message)


def compile_request(
    *, schema: Schema[ParsedT_co] | None, model: str, **options: Unpack[ConstraintOptions]
) -> tuple[constraint_pb2.CompileRequest, Callable[[str], ParsedT_co]]:
    """A constraint to compile, and the parser of the texts that will fit it."""
    constraint, parser = encode_constraint(schema=schema, **options)
    if constraint is None:
        message = (
            "constraint: is missing; give schema, regex, choices, json_object, grammar, tool_calls or structural_tags"
        )
        raise InvalidArgumentError(message, "constraint")
    with checked("model"):
        return constraint_pb2.CompileRequest(model=model, constraint=constraint), parser


def explain_request(
    *, schema: Schema[Any] | None, model: str, **options: Unpack[ConstraintOptions]
) -> constraint_pb2.ExplainRequest:
    """A constraint to explain."""
    message, _ = compile_request(schema=schema, model=model, **options)
    return constraint_pb2.ExplainRequest(model=model, constraint=message.constraint)


def tokenize_request(text: str, *, add_special_tokens: bool, model: str) -> model_pb2.TokenizeRequest:
    """A text to tokenize."""
    with checked("text"):
        return model_pb2.TokenizeRequest(model=model, text=text, add_special_tokens=add_special_tokens)


def detokenize_request(ids: Sequence[int], *, skip_special_tokens: bool, model: str) -> model_pb2.DetokenizeRequest:
    """Token ids to turn into text."""
    with checked("ids"):
        return model_pb2.DetokenizeRequest(model=model, ids=ids, skip_special_tokens=skip_special_tokens)
