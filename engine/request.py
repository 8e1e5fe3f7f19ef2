"""What goes into the engine and what comes out of it.

Invariant: token ids only. Each sample of a request ends with exactly one event that carries a finish.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from decoding.finish import FinishReason
from decoding.params import SamplingParams
from decoding.rows import TokenLogprobs
from decoding.stops import StopChecker
from drafters.speculation import Speculation
from grammars.protocol import Grammar


class AwaitedGrammar(Protocol):
    """A grammar that is still being made, by somebody else."""

    def arrived(self) -> Grammar | None:
        """The grammar, once it is there. Asked between and within steps, so that it must not wait."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One prompt and what to generate from it.

    Attributes:
        request_id: unique among the requests that live.
        prompt: token ids, at least one.
        params: sampling of every sample.
        n: number of samples; sample i draws with sample index i and shares the prompt's blocks.
        grammar: constraint of every sample, or None.
        awaited: the constraint where it is still being made, else None; `grammar` is None beside it. The prompt is
            computed meanwhile, and nothing is drawn before it arrives.
        stop: fresh checker, forked for every sample, or None.
        priority: larger runs first and is preempted last.
        tenant: salt of the prefix cache; requests of different tenants never share blocks.
        speculation: who may guess, and how much; it changes no output.
    """

    request_id: str
    prompt: tuple[int, ...]
    params: SamplingParams
    n: int = 1
    grammar: Grammar | None = None
    awaited: AwaitedGrammar | None = None
    stop: StopChecker | None = None
    priority: int = 0
    tenant: str = ""
    speculation: Speculation = field(default_factory=Speculation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Counts of one sample.

    Attributes:
        prompt: prompt tokens.
        completion: committed output tokens, a closing end-of-sequence token included.
        cached: prompt tokens whose KV came from the prefix cache at admission.
        drafted: guesses offered to the target.
        accepted: guesses that were committed.
        forced: accepted guesses that the grammar left no choice about.
        rejected_by_grammar: guesses that the grammar forbade before they were offered.
        accepted_per_position: how often the first, second, … guess of a step was committed.
        preemptions: how often the sample lost its blocks and was computed again.
        draft_ms: wall time that the sample's steps spent on guessing; steps are shared with batch mates.
        mask_ms: the same for masks.
        forward_ms: the same for the model.
        sample_ms: the same for draws.
    """

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    drafted: int = 0
    accepted: int = 0
    forced: int = 0
    rejected_by_grammar: int = 0
    accepted_per_position: tuple[int, ...] = ()
    preemptions: int = 0
    draft_ms: float = 0.0
    mask_ms: float = 0.0
    forward_ms: float = 0.0
    sample_ms: float = 0.0

    @property
    def rejected_by_model(self) -> int:
        """Guesses that the target was offered and did not take, those beside the accepted path included."""
        return self.drafted - self.accepted


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """How one sample ended.

    Attributes:
        reason: why.
        message: problem and mend, for NO_LEGAL_TOKEN and ERROR.
        constraint_complete: the text satisfies the constraint; None without one. False means: a valid prefix.
        usage: counts of the sample.
    """

    reason: FinishReason
    message: str = ""
    constraint_complete: bool | None = None
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEvent:
    """Tokens that one sample gained in one step, all of them verified.

    ``logprobs`` has one entry per token where the request asked for them, else none. A closing end-of-sequence token
    is among ``tokens``.
    """

    request_id: str
    sample_index: int
    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()
    finish: Finish | None = None
