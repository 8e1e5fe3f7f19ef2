"""The one mutable record: a sample of a request on its way through the engine.

There are no phases. A step closes the gap between computed and known tokens: a prompt is a large gap, decoding is a gap
of one, a preempted sequence is a large gap again. Invariant: ``0 <= num_computed < len(tokens)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from decoding.rejection import Keys
from decoding.rows import RowContext
from decoding.stops import StopChecker
from drafters.speculation import DraftSettings
from engine.drafted import Drafted
from engine.kv_cache import BLOCK_SIZE
from engine.prefix import PrefixChain
from engine.request import AwaitedGrammar, GenerationRequest, Usage
from grammars.protocol import Matcher


def blocks_for(num_tokens: int) -> int:
    """Blocks that hold ``num_tokens`` slots."""
    return -(-num_tokens // BLOCK_SIZE)


@dataclass(slots=True, kw_only=True, eq=False)
class Sequence:
    """One sample.

    Attributes:
        id: unique in the engine's life.
        request: what it is a sample of.
        sample_index: which sample; a key of its draws.
        arrival: order of submission; the smaller is older.
        tokens: prompt and committed output.
        output: the committed output alone.
        max_length: most tokens that it may come to.
        drafting: who may guess for it, and how much.
        matcher: the constraint's state after `tokens`.
        awaited: the constraint that has not arrived; `matcher` is None beside it.
        stop: the stop strings' state after `tokens`.
        chain: prefix keys of its full blocks.
        num_computed: length of the prefix of `tokens` whose KV is valid.
        blocks: block table; covers at least `num_computed` slots.
        num_indexed: leading blocks that were offered to the prefix index.
        cached: prompt tokens found in the prefix cache at first admission; None before it.
        drafted: what became of the guesses.
        seconds: wall time of its steps by stage.
        followers: samples 1.. that draw their first token from this one's prompt.
    """

    id: int
    request: GenerationRequest
    sample_index: int
    arrival: int
    tokens: list[int]
    max_length: int
    drafting: DraftSettings
    matcher: Matcher | None
    stop: StopChecker | None
    chain: PrefixChain
    awaited: AwaitedGrammar | None = None
    output: list[int] = field(default_factory=list)
    num_computed: int = 0
    blocks: list[int] = field(default_factory=list)
    num_indexed: int = 0
    cached: int | None = None
    drafted: Drafted = field(default_factory=Drafted)
    seconds: dict[str, float] = field(default_factory=dict)
    preemptions: int = 0
    followers: list[Sequence] = field(default_factory=list)

    @property
    def num_prompt(self) -> int:
        """Prompt tokens."""
        return len(self.request.prompt)

    @property
    def gap(self) -> int:
        """Known tokens that are not computed; at least 1."""
        return len(self.tokens) - self.num_computed

    @property
    def rank(self) -> tuple[int, int, int]:
        """Sort key: who runs first and is preempted last comes first."""
        return (-self.request.priority, self.arrival, self.sample_index)

    def row(self, drafted: tuple[int, ...] = ()) -> RowContext:
        """Context of the row that follows `tokens` and then the guesses ``drafted``, without its mask."""
        return RowContext(
            params=self.request.params,
            sample_index=self.sample_index,
            prompt=self.request.prompt,
            output=[*self.output, *drafted] if drafted else self.output,
        )

    def keys(self) -> Keys:
        """Of the noise that guesses below `tokens` are drawn and verified with."""
        return Keys(seed=self.request.params.seed, sample_index=self.sample_index, position=len(self.tokens))

    def may_draw(self) -> bool:
        """Whether its constraint, if it has one, is there; takes it where it has arrived."""
        if self.awaited is not None and (grammar := self.awaited.arrived()) is not None:
            self.matcher, self.awaited = grammar.matcher(), None
        return self.awaited is None

    def append(self, token: int) -> None:
        """Make one verified token known."""
        self.tokens.append(token)
        self.output.append(token)

    def usage(self) -> Usage:
        """Counts so far."""
        return Usage(
            prompt=self.num_prompt,
            completion=len(self.output),
            cached=self.cached or 0,
            drafted=self.drafted.offered,
            accepted=self.drafted.accepted,
            forced=self.drafted.forced,
            rejected_by_grammar=self.drafted.rejected_by_grammar,
            accepted_per_position=tuple(self.drafted.per_position),
            preemptions=self.preemptions,
            draft_ms=self._ms("draft"),
            mask_ms=self._ms("mask"),
            forward_ms=self._ms("forward"),
            sample_ms=self._ms("sample"),
        )

    def spend(self, seconds: Mapping[str, float]) -> None:
        """Count the stages of a step that it took part in."""
        for stage, spent in seconds.items():
            self.seconds[stage] = self.seconds.get(stage, 0.0) + spent

    def _ms(self, stage: str) -> float:
        return 1000.0 * self.seconds.get(stage, 0.0)
