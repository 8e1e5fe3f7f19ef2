"""One generation request, as a caller writes it.

Invariant: a `Request` that exists has one prompt and at most one constraint, and its protobuf form is complete. On the
wire a `oneof` keeps the last of two in silence, so two are refused here, before anything is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableSequence, Sequence
from typing import Any, Final, Generic, Literal, TypedDict, Unpack

from service.client.checks import checked, only_one, refuse_single_text
from service.client.constraint import ConstraintOptions, encode_constraint
from service.client.errors import InvalidArgumentError
from service.client.results import CompiledConstraint, ParsedT_co
from service.client.schema_text import Schema
from service.v1 import generation_pb2 as pb

SCALARS: Final = (
    "max_tokens",
    "min_tokens",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "logprobs",
    "ignore_eos",
    "finish_within_limit",
)
"""Sampling options that go over the wire under their own name."""

SPECULATION: Final = ("drafter", "max_draft_tokens", "tree_width")
"""Options of speculation, the same."""


class ChatMessage(TypedDict):
    """One turn of a chat, e.g. ``{"role": "user", "content": "Name a tree."}``."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str


class SamplingOptions(TypedDict, total=False):
    """How tokens are drawn. An option that is absent or None is off, or has the server's default."""

    max_tokens: int | None
    """Most tokens to generate, at least 1; default 256, cut to what the context leaves."""
    min_tokens: int | None
    """No end-of-sequence token before this many tokens."""
    temperature: float | None
    """0 takes the most likely token; default 1."""
    top_k: int | None
    """Keep the k most likely tokens."""
    top_p: float | None
    """Keep the smallest set of tokens whose probability reaches this."""
    min_p: float | None
    """Drop tokens less likely than this share of the most likely one."""
    repetition_penalty: float | None
    """Divides (or multiplies, where negative) logits of tokens seen in prompt or output; 1 is off."""
    presence_penalty: float | None
    """Subtracted once from logits of tokens seen in the output."""
    frequency_penalty: float | None
    """Subtracted once per occurrence in the output."""
    logit_bias: Mapping[int, float] | None
    """Added to the logits of these token ids."""
    bad_words: Sequence[str] | None
    """Texts that never appear in the output."""
    seed: int | None
    """Equal seeds give equal texts from one server, but for near ties in low precision; drawn unless set."""
    logprobs: int | None
    """0 for the chosen token's log-probability, k for the k most likely beside it."""
    ignore_eos: bool | None
    """End-of-sequence tokens are never drawn."""
    finish_within_limit: bool | None
    """A constrained text is whole within ``max_tokens``, which must hold the shortest one."""
    stop: Sequence[str] | None
    """The text ends before the first of these."""


class Options(SamplingOptions, ConstraintOptions, total=False):
    """Everything that a request may say beside its prompt, its schema and its compiled constraint."""

    chat: Sequence[ChatMessage] | None
    """The prompt as chat messages, rendered by the model's own template."""
    tokens: Sequence[int] | None
    """The prompt as token ids."""
    n: int | None
    """Number of samples; default 1."""
    priority: int
    """Larger runs first; default 0, in [-100, 100]."""
    tenant: str
    """Prefix-cache salt: requests of different tenants share no cached prompt."""
    drafter: str
    """Who guesses tokens ahead: AUTO (the default), NONE, or drafters that the server has loaded, as forced+ngram."""
    max_draft_tokens: int | None
    """Most guesses per step."""
    tree_width: int | None
    """Most guesses for one position."""
    model: str
    """Empty means the server's model."""


class Request(Generic[ParsedT_co]):
    """A prompt, at most one constraint, and options (`Options`); `Generation.parsed` has the type of the constraint.

    Raises InvalidArgumentError, naming the field, where the request cannot be sent as it stands; whether its values are
    in range is the server's to say.

    Attributes:
        message: the protobuf form.
        parser: turns a complete text into `parsed`.
    """

    __slots__ = ("message", "parser")

    message: pb.GenerateRequest
    parser: Callable[[str], ParsedT_co]

    def __init__(
        self,
        prompt: str | None = None,
        *,
        schema: Schema[ParsedT_co] | None = None,
        constraint: CompiledConstraint[ParsedT_co] | None = None,
        **options: Unpack[Options],
    ) -> None:
        unknown = options.keys() - Options.__annotations__.keys()
        if unknown:
            raise TypeError(f"unknown option {', '.join(sorted(unknown))}; the keys of Options are known")
        given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        constraint_options = {name: given[name] for name in ConstraintOptions.__annotations__ if name in given}
        encoded, self.parser = encode_constraint(schema=schema, compiled=constraint, **constraint_options)
        self.message = pb.GenerateRequest(constraint=encoded)
        _set_prompt(self.message, prompt=prompt, chat=given.get("chat"), tokens=given.get("tokens"))
        _set_named(self.message, ("n", "priority", "tenant", "model"), given, path="")
        _set_named(self.message.speculation, SPECULATION, given, path="speculation.")
        _set_sampling(self.message.sampling, given)

    @property
    def num_samples(self) -> int:
        """How many samples the answer will have."""
        return self.message.n if self.message.HasField("n") else 1

    def __repr__(self) -> str:
        return f"Request({str(self.message).strip()!r})"


def _set_prompt(
    message: pb.GenerateRequest, *, prompt: str | None, chat: Sequence[ChatMessage] | None, tokens: Sequence[int] | None
) -> None:
    if only_one({"prompt": prompt, "chat": chat, "tokens": tokens}, field="prompt") is None:
        raise InvalidArgumentError("prompt: is missing; give one of prompt, chat, tokens", "prompt")
    if prompt is not None:
        with checked("text"):
            message.text = prompt
    elif tokens is not None:
        with checked("tokens.ids"):
            message.tokens.CopyFrom(pb.TokenPrompt(ids=tokens))
    elif chat is not None:
        with checked("chat.messages"):
            message.chat.CopyFrom(pb.ChatPrompt(messages=[pb.ChatMessage(**turn) for turn in chat]))


def _set_sampling(message: pb.SamplingOptions, given: Mapping[str, Any]) -> None:
    _set_named(message, SCALARS, given, path="sampling.")
    if "logit_bias" in given:
        with checked("sampling.logit_bias"):
            message.logit_bias.update(given["logit_bias"])
    if "stop" in given:
        _extend(message.stop, given["stop"], field="sampling.stop")
    if "bad_words" in given:
        _extend(message.bad_words.words, given["bad_words"], field="sampling.bad_words")


def _extend(texts: MutableSequence[str], values: Sequence[str], field: str) -> None:
    refuse_single_text(values, field)
    with checked(field):
        texts.extend(values)


def _set_named(
    message: pb.GenerateRequest | pb.SamplingOptions | pb.SpeculationOptions,
    names: Iterable[str],
    given: Mapping[str, Any],
    path: str,
) -> None:
    for name in names:
        if name in given:
            with checked(f"{path}{name}"):
                setattr(message, name, given[name])
