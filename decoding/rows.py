"""One row of logits and everything that its draw depends on, and what comes out of the draw.

Invariant: a `Draw` is a function of the row's logits and its `RowContext`, never of other rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from decoding.masks import MaskRow
from decoding.params import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class RowContext:
    """The path that leads to one row: committed tokens, then the guesses above its node, the node included.

    Attributes:
        params: the request's sampling parameters.
        sample_index: index of the sample, a key of its draws.
        prompt: prompt token ids.
        output: generated token ids up to and including this row's node. The token to draw has absolute position
            ``len(prompt) + len(output)``, the other key of its draw.
        mask: legal tokens, or None without a constraint.
    """

    params: SamplingParams
    sample_index: int
    prompt: Sequence[int]
    output: Sequence[int]
    mask: MaskRow | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprobs:
    """Natural log-probabilities at one position, after all stages of the pipeline but the draw.

    Attributes:
        token: the chosen token's.
        top: (token id, log-probability) of the most likely tokens, descending, lower id first among equals.
    """

    token: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """The outcome of one row.

    Attributes:
        token: the drawn id, or None where no token was legal or the row is in error.
        logprobs: where the row's params ask for them and a token was drawn.
        error: why the row could not be drawn although tokens were legal: its logits are not finite. Else None.
    """

    token: int | None
    logprobs: TokenLogprobs | None = None
    error: str | None = None
