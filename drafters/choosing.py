"""Who drafts for which sequence in a step, and which of the guesses are computed.

A step asks `Chooser.choose` before anything is drafted and `Chooser.prune` when the trees are grown. Invariant: a
choice stays within its context's limits, and a request that names its drafters gets just these, with all their guesses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from drafters.growing import GrowingTree
from drafters.protocol import DraftContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The drafters of one tree and its most nodes, node 0 included, with at most `width` guesses below one node."""

    mix: tuple[str, ...]
    limit: int
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceState:
    """What a chooser makes of things now.

    Attributes:
        budget: guesses that the last step was held to be worth, of all undecided requests together.
        acceptance: by drafter, the share of its guesses that the target takes where it gets to them.
    """

    budget: int = 0
    acceptance: Mapping[str, float] = field(default_factory=dict)


class Chooser(Protocol):
    """Decides for the whole batch at once."""

    def begin(self, other_rows: int) -> None:
        """A step begins; it computes so many rows beside the trees (chunks of prompts)."""
        ...

    def choose(self, contexts: Sequence[DraftContext]) -> list[Choice]:
        """One choice per context, in order."""
        ...

    def prune(self, trees: Sequence[GrowingTree], draft_ms: Mapping[str, float]) -> list[Sequence[int]]:
        """Of each grown tree the nodes to compute, ascending, each with its parent; those that were drawn stay anyway.

        ``draft_ms``: what the drafters that were asked took.
        """
        ...

    def observe(self, sequence_id: int, tokens: Sequence[int], accepted: int) -> None:
        """See `drafters.protocol.Drafter.observe`."""
        ...

    def end(self, rows: int, ms: float) -> None:
        """The step ends; it computed so many rows in so much time, drafting not included."""
        ...

    def forget(self, sequence_id: int) -> None:
        """See `drafters.protocol.Drafter.forget`."""
        ...

    def state(self) -> ChoiceState:
        """A snapshot."""
        ...


class FixedChooser:
    """The same mix for every request that leaves the choice to the server, and rows shared evenly under load.

    What it chooses depends on the requests alone, never on timing.
    """

    def __init__(self, mix: Sequence[str], *, rows: int) -> None:
        """``mix`` are the drafters of undecided requests, whose nodes come to ``rows`` in a step where they can."""
        self._mix = tuple(mix)
        self._rows = rows
        self._budget = 0

    def begin(self, other_rows: int) -> None:
        """Nothing depends on it."""

    def choose(self, contexts: Sequence[DraftContext]) -> list[Choice]:
        """Named drafters get the context's limit, the others an even share of the rows."""
        share = max(1, self._rows // max(1, len(contexts)))
        return [self._choice(context, share) for context in contexts]

    def prune(self, trees: Sequence[GrowingTree], draft_ms: Mapping[str, float]) -> list[Sequence[int]]:  # noqa: ARG002 (a fixed choice has no costs)
        """All of them."""
        self._budget = sum(len(tree) - 1 for tree in trees if tree.context.mix is None)
        return [range(len(tree)) for tree in trees]

    def observe(self, sequence_id: int, tokens: Sequence[int], accepted: int) -> None:
        """Nothing to learn."""

    def end(self, rows: int, ms: float) -> None:
        """Nothing to learn."""

    def forget(self, sequence_id: int) -> None:
        """Nothing to drop."""

    def state(self) -> ChoiceState:
        """Guesses of the last step."""
        return ChoiceState(budget=self._budget)

    def _choice(self, context: DraftContext, share: int) -> Choice:
        if context.mix is None:
            return Choice(mix=self._mix, limit=min(context.limit, share), width=context.width)
        return Choice(mix=context.mix, limit=context.limit, width=context.width)
