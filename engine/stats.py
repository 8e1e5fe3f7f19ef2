"""What the engine counts while it works.

Invariant: totals only grow; gauges describe the moment of the call.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from engine.blocks import BlockCounts

if TYPE_CHECKING:  # the service's process reads statistics and needs no torch for it
    from engine.commit import Committed
    from engine.verification import Verification


@dataclass(slots=True, kw_only=True)
class Totals:
    """Running totals since the start.

    Attributes:
        steps: forward passes.
        prompt_tokens: prompt tokens of sequences that drew their first token.
        generation_tokens: committed output tokens.
        prefix_queried_tokens: tokens looked up in the prefix cache at first admission.
        prefix_hit_tokens: those of them that were found.
        preemptions: sequences that lost their blocks.
        drafts: trees of more than one node.
        draft_tokens: guesses offered to the model.
        accepted_tokens: guesses that were committed.
        seconds: wall time by stage of the step.
    """

    steps: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    prefix_queried_tokens: int = 0
    prefix_hit_tokens: int = 0
    preemptions: int = 0
    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the wall time of the block to ``seconds[stage]``."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - start

    def count(self, item: Verification, gained: Committed) -> None:
        """Add what one verification committed."""
        sequence, gain = item.sequence, len(gained.tokens)
        is_first = gain == len(sequence.output) and sequence.sample_index == 0
        self.prompt_tokens += sequence.num_prompt if is_first else 0
        self.generation_tokens += gain
        self.drafts += len(item.tree) > 1
        self.draft_tokens += len(item.tree) - 1
        self.accepted_tokens += gained.accepted

    def copy(self) -> Totals:
        """A snapshot that does not grow."""
        return replace(self, seconds=dict(self.seconds))


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """A snapshot: gauges and a copy of the totals."""

    running: int
    waiting: int
    blocks: BlockCounts
    totals: Totals
