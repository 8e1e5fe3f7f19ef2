"""What the engine counts while it works.

Invariant: totals only grow; gauges describe the moment of the call.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from drafters.choosing import ChoiceState
from engine.blocks import BlockCounts
from engine.drafted import Drafted

if TYPE_CHECKING:  # the service's process reads statistics and needs no torch for it
    from engine.commit import Committed
    from engine.verification import Verification


class StepClock:
    """Wall time by stage of one step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the wall time of the block to ``seconds[stage]``."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - start


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
        drafted: what became of the guesses.
        seconds: wall time by stage of the step.
    """

    steps: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    prefix_queried_tokens: int = 0
    prefix_hit_tokens: int = 0
    preemptions: int = 0
    drafted: Drafted = field(default_factory=Drafted)
    seconds: dict[str, float] = field(default_factory=dict)

    def spend(self, seconds: Mapping[str, float]) -> None:
        """Add the stages of one step."""
        for stage, spent in seconds.items():
            self.seconds[stage] = self.seconds.get(stage, 0.0) + spent

    def count(self, item: Verification, gained: Committed) -> None:
        """Add what one verification committed."""
        sequence, gain = item.sequence, len(gained.tokens)
        is_first = gain == len(sequence.output) and sequence.sample_index == 0
        self.prompt_tokens += sequence.num_prompt if is_first else 0
        self.generation_tokens += gain
        self.drafted.count(item.draft, gained.nodes)

    def copy(self) -> Totals:
        """A snapshot that does not grow."""
        return replace(self, drafted=self.drafted.copy(), seconds=dict(self.seconds))


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """A snapshot: gauges and a copy of the totals."""

    running: int
    waiting: int
    blocks: BlockCounts
    totals: Totals
    choice: ChoiceState = field(default_factory=ChoiceState)
