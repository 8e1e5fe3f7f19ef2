"""What became of guesses: of one sample's, and of all since the start.

Invariant: ``accepted == sum(per_position)``, and no more are accepted than were offered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from drafters.protocol import Draft
from drafters.speculation import FORCED


@dataclass(slots=True, kw_only=True)
class Drafted:
    """Counts that grow.

    Attributes:
        trees: drafts of more than one node.
        offered: guesses that the target checked.
        accepted: those of them that were committed.
        forced: those of the accepted that the grammar left no choice about.
        rejected_by_grammar: guesses that were never offered, because the grammar forbids them.
        per_position: how often the first, second, … guess of a step was committed.
    """

    trees: int = 0
    offered: int = 0
    accepted: int = 0
    forced: int = 0
    rejected_by_grammar: int = 0
    per_position: list[int] = field(default_factory=list)

    @property
    def rejected(self) -> int:
        """Guesses that the target checked and that were not committed."""
        return self.offered - self.accepted

    def count(self, draft: Draft, accepted: Sequence[int]) -> None:
        """Add one draft, of which these nodes were committed, in order."""
        offered = len(draft.tree) - 1
        self.trees += offered > 0
        self.offered += offered
        self.accepted += len(accepted)
        self.rejected_by_grammar += draft.rejected
        if draft.sources:
            self.forced += sum(draft.sources[node] == FORCED for node in accepted)
        self.per_position += [0] * (len(accepted) - len(self.per_position))
        for position in range(len(accepted)):
            self.per_position[position] += 1

    def copy(self) -> Drafted:
        """A snapshot that does not grow."""
        return replace(self, per_position=list(self.per_position))
