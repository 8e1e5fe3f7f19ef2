"""Generation requests from the wire to what the engine takes, refused by field and mend where they cannot be honoured.

Invariant: sizes are checked before work that grows with them.
"""

from __future__ import annotations

import secrets
import uuid

from decoding.errors import InvalidRequestError
from decoding.params import MAX_BAD_WORD_TOKENS, MAX_BAD_WORDS, SamplingParams
from drafters.speculation import AUTO_NAME, Speculation
from engine.request import GenerationRequest
from service.engine_messages import Submit
from service.limits import check_at_most
from service.prompts import read_prompt
from service.serving_model import ServingModel
from service.v1 import generation_pb2 as pb

DEFAULT_MAX_TOKENS = 256
MAX_PRIORITY = 100
MAX_WORDS = MAX_BAD_WORDS // 2
"""Each bad word is spelled in two ways."""

_SCALARS = (
    "min_tokens",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logprobs",
    "ignore_eos",
    "finish_within_limit",
)
"""Options that go to `SamplingParams` under their own name."""


async def read_request(message: pb.GenerateRequest, model: ServingModel) -> Submit:
    """What to submit, but for the constraint, under a fresh id and with a seed.

    Raises InvalidRequestError, and PreconditionError for a chat without a template.
    """
    model.check_name(message.model)
    samples = message.n if message.HasField("n") else 1
    if samples < 1:
        raise InvalidRequestError("n", "is 0; ask for at least 1 sample")
    check_at_most("n", samples, model.limits.max_samples, "samples")
    if not -MAX_PRIORITY <= message.priority <= MAX_PRIORITY:
        raise InvalidRequestError("priority", f"{message.priority} is outside [-{MAX_PRIORITY}, {MAX_PRIORITY}]")
    check_at_most("tenant", len(message.tenant.encode()), model.limits.max_tenant_bytes, "bytes")
    if message.sampling.finish_within_limit and not message.constraint.ByteSize():
        raise InvalidRequestError("sampling.finish_within_limit", "needs a constraint; set one, or leave it unset")
    stop = _stop_strings(message.sampling, model)
    prompt = await read_prompt(message, model)
    request = GenerationRequest(
        request_id=uuid.uuid4().hex,
        prompt=prompt,
        params=await _params(message.sampling, model, room=model.card.context_length - len(prompt)),
        n=samples,
        priority=message.priority,
        tenant=message.tenant,
        speculation=_speculation(message.speculation),
    )
    return Submit(request=request, stop_strings=stop)


def _stop_strings(sampling: pb.SamplingOptions, model: ServingModel) -> tuple[str, ...]:
    check_at_most("sampling.stop", len(sampling.stop), model.limits.max_stop_strings, "stop strings")
    for index, stop in enumerate(sampling.stop):
        field = f"sampling.stop[{index}]"
        if not stop:
            raise InvalidRequestError(field, "is empty; every stop string needs at least one character")
        check_at_most(field, len(stop.encode()), model.limits.max_stop_string_bytes, "bytes")
    return tuple(sampling.stop)


def _speculation(message: pb.SpeculationOptions) -> Speculation:
    """What is asked for; whether it is loaded and within bounds, the engine says."""
    return Speculation(
        drafter=message.drafter or AUTO_NAME,
        max_draft_tokens=message.max_draft_tokens if message.HasField("max_draft_tokens") else None,
        tree_width=message.tree_width if message.HasField("tree_width") else None,
    )


async def _params(sampling: pb.SamplingOptions, model: ServingModel, *, room: int) -> SamplingParams:
    given = {name: getattr(sampling, name) for name in _SCALARS if sampling.HasField(name)}  # type: ignore[arg-type]
    if sampling.HasField("logprobs"):
        check_at_most("sampling.logprobs", sampling.logprobs, model.limits.max_logprobs, "alternatives")
    max_tokens = sampling.max_tokens if sampling.HasField("max_tokens") else DEFAULT_MAX_TOKENS
    params = SamplingParams(
        max_tokens=min(max_tokens, room),
        logit_bias=dict(sampling.logit_bias),
        bad_words=await _bad_words(sampling.bad_words, model),
        seed=sampling.seed if sampling.HasField("seed") else secrets.randbits(64),
        **given,
    )
    params.check_vocabulary(model.vocabulary.num_tokens)
    return params


async def _bad_words(message: pb.BadWords, model: ServingModel) -> tuple[tuple[int, ...], ...]:
    field, words = "sampling.bad_words.words", message.words
    check_at_most(field, len(words), MAX_WORDS, "words")
    check_at_most(field, sum(len(word.encode()) for word in words), model.limits.max_text_bytes, "bytes")
    if "" in words:
        raise InvalidRequestError(f"{field}[{list(words).index('')}]", "is empty; every word needs a character")
    spellings = await model.tokenizer.encode_words(words) if words else ()
    check_at_most(field, max(map(len, spellings), default=0), MAX_BAD_WORD_TOKENS, "tokens of one word")
    return spellings
