"""The one place where verified tokens become part of a sequence.

Tokens are taken one by one, so that an end-of-sequence token, a stop string, the end of the grammar or a limit in the
middle of an accepted draft cuts the tail and its KV. Invariant: only verified tokens advance a matcher or a checker.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass

from decoding.errors import EspalierError
from decoding.finish import FinishReason
from decoding.rows import TokenLogprobs
from drafters.protocol import Draft
from engine.request import Finish
from engine.sequence import Sequence
from engine.verification import NO_TOKEN, Verdict

log = logging.getLogger(__name__)

_NO_LEGAL_TOKEN = (
    "constraint, bad words, bias and min_tokens together leave no legal token; relax one of the sampling fields"
)
_COMPLETE_BEFORE_MIN_TOKENS = (
    "the constraint was complete after {} tokens, before sampling.min_tokens; the text is complete"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """What a sequence gained in one step; the first tokens had been guessed, by ``nodes`` of the draft."""

    tokens: tuple[int, ...]
    nodes: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...]
    finish: Finish | None


def commit(sequence: Sequence, verdict: Verdict, *, draft: Draft, eos_token_ids: Collection[int]) -> Committed:
    """Append the walk's tokens up to and including the one that ends the text."""
    start = len(sequence.output)
    reason: FinishReason | None = None
    message = ""
    for token, draw in zip(verdict.walk.tokens, verdict.draws, strict=True):
        if token == NO_TOKEN:
            reason = FinishReason.ERROR if draw.error else FinishReason.NO_LEGAL_TOKEN
            message = draw.error or _NO_LEGAL_TOKEN
            break
        try:
            reason, message = _take(sequence, token, eos_token_ids)
        except EspalierError as problem:
            reason, message = FinishReason.ERROR, str(problem)
        except Exception:
            log.exception("request %s failed while a token was committed", sequence.request.request_id)
            reason, message = FinishReason.ERROR, "committing a token failed; this is a bug of the server"
        if reason is not None:
            break
    tokens = tuple(sequence.output[start:])
    kept = verdict.draws[: len(tokens)]
    nodes = verdict.walk.nodes[1 : len(tokens) + 1]
    sequence.drafted.count(draft, nodes)
    return Committed(
        tokens=tokens,
        nodes=nodes,
        logprobs=tuple(draw.logprobs for draw in kept if draw.logprobs is not None),
        finish=None if reason is None else finish(sequence, reason, message),
    )


def finish(sequence: Sequence, reason: FinishReason, message: str = "") -> Finish:
    """The end of a sequence as it stands."""
    complete = None if sequence.awaited is None else False
    if sequence.matcher is not None:
        # A stop string is cut from the text, so that what is left is a prefix of what the matcher saw.
        whole = sequence.matcher.is_finished or sequence.matcher.is_accepting
        complete = whole and reason not in (FinishReason.STOP_STRING, FinishReason.ERROR)
    return Finish(reason=reason, message=message, constraint_complete=complete, usage=sequence.usage())


def _take(sequence: Sequence, token: int, eos_token_ids: Collection[int]) -> tuple[FinishReason | None, str]:
    """Append one token; the reason why the text ends with it, if it does."""
    if sequence.matcher is not None:
        sequence.matcher.advance(token)
    sequence.append(token)
    if token in eos_token_ids:
        return FinishReason.EOS, ""
    if sequence.stop is not None and sequence.stop.feed(token):
        return FinishReason.STOP_STRING, ""
    if sequence.matcher is not None and sequence.matcher.only_end():
        if len(sequence.output) < sequence.request.params.min_tokens:
            return FinishReason.NO_LEGAL_TOKEN, _COMPLETE_BEFORE_MIN_TOKENS.format(len(sequence.output))
        return FinishReason.GRAMMAR_END, ""
    if len(sequence.tokens) >= sequence.max_length:
        return FinishReason.LENGTH, ""
    return None, ""
