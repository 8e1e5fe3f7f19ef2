"""What the client returns: frozen dataclasses and plain enums, without a protobuf type among them.

Invariant: a result is complete at construction and never changes.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic

from typing_extensions import TypeVar

from service.client.errors import IncompleteOutputError
from service.client.parts import TextPart, TextParts, ToolCall

ParsedT_co = TypeVar("ParsedT_co", covariant=True, default=Any)


class FinishReason(enum.Enum):
    """Why a sample ended."""

    EOS = "eos"
    """The model drew an end-of-sequence token."""
    STOP_STRING = "stop_string"
    """A stop string was completed; the text ends before it."""
    CONSTRAINT_END = "constraint_end"
    """The constraint was complete and allowed nothing but the end."""
    LENGTH = "length"
    """max_tokens or the context length was reached."""
    NO_LEGAL_TOKEN = "no_legal_token"
    """Constraint, bad words, bias and min_tokens together left no token."""
    CANCELLED = "cancelled"
    """The sample was cancelled."""
    ERROR = "error"
    """This sample failed alone; its message says why."""
    UNKNOWN = "unknown"
    """A reason that this client does not know, from a newer server."""


class Completeness(enum.Enum):
    """Whether a text satisfies its constraint."""

    UNCONSTRAINED = "unconstrained"
    """There was no constraint."""
    COMPLETE = "complete"
    """The text satisfies the constraint."""
    VALID_PREFIX = "valid_prefix"
    """The text was cut: some continuation of it satisfies the constraint."""


class Health(enum.Enum):
    """What the server says about itself."""

    SERVING = "serving"
    NOT_SERVING = "not_serving"
    """Warming up, draining, or its engine makes no progress."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What was counted while samples were produced.

    Attributes:
        cached_tokens: prompt tokens that came from the prefix cache.
        drafted_tokens: guesses that the model checked.
        accepted_tokens: those of them that became output.
        forced_tokens: those of the accepted that the constraint left no choice about.
        preemptions: how often work was computed again because its memory was needed elsewhere.
        rejected_by_model_tokens: guesses that the model did not take.
        rejected_by_grammar_tokens: guesses that were never offered, because the constraint forbids them.
        accepted_per_position: how often the first, second, … guess of a step became output.
        draft_ms: what the samples' steps spent on guessing, shared with whatever ran beside; `mask_ms` on the
            constraint's masks, `forward_ms` on the model, `sample_ms` on drawing tokens.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    forced_tokens: int = 0
    preemptions: int = 0
    rejected_by_model_tokens: int = 0
    rejected_by_grammar_tokens: int = 0
    accepted_per_position: tuple[int, ...] = ()
    draft_ms: float = 0.0
    mask_ms: float = 0.0
    forward_ms: float = 0.0
    sample_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprob:
    """One token, its bytes (a token may hold part of a character) and the natural logarithm of its probability."""

    token_id: int
    token: bytes
    logprob: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionLogprobs:
    """Log-probabilities at one position: the chosen token's, and the most likely ones, descending."""

    chosen: TokenLogprob
    top: tuple[TokenLogprob, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnenforcedKeyword:
    """A schema keyword that `best_effort` let pass; `pointer` is a JSON pointer into the schema.

    `field` is the path of the schema in the request, e.g. ``constraint.tool_calls.tools[2].parameters``; empty where
    the request has one schema.
    """

    pointer: str
    keyword: str
    reason: str
    field: str = ""


@dataclass(frozen=True, kw_only=True)  # no slots: `parsed` is cached in __dict__
class Sample(Generic[ParsedT_co]):
    """One generated text.

    Attributes:
        index: 0 ≤ index < n.
        logprobs: one entry per token where the request asked for them, else empty.
        message: problem and mend, where the finish reason is NO_LEGAL_TOKEN or ERROR.
        taken_apart: the text in parts, where the request asked for reasoning, tags or tools.
        parser: turns a complete content into `parsed`.
    """

    index: int
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[PositionLogprobs, ...]
    finish_reason: FinishReason
    completeness: Completeness
    message: str
    usage: Usage
    taken_apart: TextParts | None = None
    parser: Callable[[str], ParsedT_co] = field(repr=False, compare=False)

    @property
    def reasoning(self) -> str | None:
        """What came of the reasoning that the request asked for, without its markers; None where it asked for none."""
        return None if self.taken_apart is None else self.taken_apart.reasoning

    @property
    def content(self) -> str:
        """The text without the reasoning and its markers."""
        return self.text if self.taken_apart is None else self.taken_apart.content

    @property
    def parts(self) -> tuple[TextPart, ...]:
        """Free text and parts, where the request asked for tags or tools."""
        return () if self.taken_apart is None else self.taken_apart.parts

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls that are whole, also of a text that was cut."""
        return () if self.taken_apart is None else self.taken_apart.tool_calls

    @property
    def complete(self) -> bool:
        """True where nothing is missing: the constraint is satisfied or, without one, the model came to its end."""
        if self.completeness is Completeness.UNCONSTRAINED:
            return self.finish_reason in (FinishReason.EOS, FinishReason.STOP_STRING)
        return self.completeness is Completeness.COMPLETE

    @cached_property
    def parsed(self) -> ParsedT_co:
        """The content's value: an instance of the request's Python type, the JSON value, the tool calls, the parts of a
        text with structural tags, or the content itself.

        Raises IncompleteOutputError where a constrained text was cut, and pydantic.ValidationError where the type has
        validators of its own, which a JSON Schema cannot carry, and they refuse the text.
        """
        if self.completeness is Completeness.VALID_PREFIX:
            raise IncompleteOutputError(self)
        return self.parser(self.content)


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation(Generic[ParsedT_co]):
    """The answer to one request.

    Attributes:
        samples: `n` of them, by index.
        usage: sum over the samples, the prompt counted once.
        seed: the seed that was used: drawn by the server unless the request had one.
        unenforced: with `best_effort`, what the constraint did not enforce.
    """

    request_id: str
    model: str
    samples: tuple[Sample[ParsedT_co], ...]
    usage: Usage
    seed: int
    unenforced: tuple[UnenforcedKeyword, ...]

    @property
    def text(self) -> str:
        """Text of the first sample."""
        return self.samples[0].text

    @property
    def content(self) -> str:
        """Text of the first sample without its reasoning."""
        return self.samples[0].content

    @property
    def reasoning(self) -> str | None:
        """Reasoning of the first sample (`Sample.reasoning`)."""
        return self.samples[0].reasoning

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """Calls of the first sample."""
        return self.samples[0].tool_calls

    @property
    def finish_reason(self) -> FinishReason:
        """Why the first sample ended."""
        return self.samples[0].finish_reason

    @property
    def complete(self) -> bool:
        """Whether the first sample lacks nothing (`Sample.complete`)."""
        return self.samples[0].complete

    @property
    def parsed(self) -> ParsedT_co:
        """Value of the first sample (`Sample.parsed`); the IncompleteOutputError carries this generation."""
        try:
            return self.samples[0].parsed
        except IncompleteOutputError as error:
            raise IncompleteOutputError(error.sample, self) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledConstraint(Generic[ParsedT_co]):
    """A constraint that the server keeps compiled; pass it as `constraint=`.

    Attributes:
        handle: valid while the server keeps the constraint; after that a request gets FailedPreconditionError.
        compile_ms: time that the compile took.
        cached: True where the server had it already.
        size_bytes: size of the compiled form; `states` counts its automaton's states.
        unenforced: with `best_effort`, what is not enforced.
        parser: turns a complete text into `parsed`.
    """

    handle: str
    compile_ms: float
    cached: bool
    size_bytes: int
    states: int
    unenforced: tuple[UnenforcedKeyword, ...]
    parser: Callable[[str], ParsedT_co] = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnforcedKeyword:
    """A schema keyword that every text obeys; `pointer` is a JSON pointer into the schema."""

    pointer: str
    keyword: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What a constraint means.

    Attributes:
        normalised: the one text that stands for all constraints that are taken as equal.
        enforced: keywords of a schema that every text obeys.
        unenforced: those that are not enforced: unknown ones, with `best_effort` also known ones.
        states: states of the automaton that the start of a text needs; `size_bytes` is the size with them.
        shortest: a text that the constraint allows, as short as can be; None for grammars.
        shortest_tokens: the fewest tokens that spell it, the least `max_tokens` with `finish_within_limit`.
    """

    normalised: str
    enforced: tuple[EnforcedKeyword, ...]
    unenforced: tuple[UnenforcedKeyword, ...]
    states: int
    size_bytes: int
    shortest: str | None
    shortest_tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenization:
    """Token ids of a text, and the bytes of each token."""

    ids: tuple[int, ...]
    tokens: tuple[bytes, ...]
