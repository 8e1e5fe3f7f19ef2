"""Who drafts for which sequence in a step, and how much.

Invariant: a choice stays within its context's limits, and a request that names its drafters gets just these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from drafters.protocol import DraftContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The drafters of one tree and its most nodes, node 0 included, with at most `width` guesses below one node."""

    mix: tuple[str, ...]
    limit: int
    width: int


class Chooser(Protocol):
    """Decides for the whole batch at once."""

    def choose(self, contexts: Sequence[DraftContext]) -> list[Choice]:
        """One choice per context, in order."""
        ...

    def observe(self, sequence_id: int, tokens: Sequence[int], accepted: int) -> None:
        """See `drafters.protocol.Drafter.observe`."""
        ...

    def forget(self, sequence_id: int) -> None:
        """See `drafters.protocol.Drafter.forget`."""
        ...


class FixedChooser:
    """The same mix for every request that leaves the choice to the server, and rows shared evenly under load."""

    def __init__(self, mix: Sequence[str], *, rows: int) -> None:
        """``mix`` are the drafters of undecided requests, whose nodes come to ``rows`` in a step where they can."""
        self._mix = tuple(mix)
        self._rows = rows

    def choose(self, contexts: Sequence[DraftContext]) -> list[Choice]:
        """Named drafters get the context's limit, the others an even share of the rows."""
        share = max(1, self._rows // max(1, len(contexts)))
        return [self._choice(context, share) for context in contexts]

    def observe(self, sequence_id: int, tokens: Sequence[int], accepted: int) -> None:
        """Nothing to learn."""

    def forget(self, sequence_id: int) -> None:
        """Nothing to drop."""

    def _choice(self, context: DraftContext, share: int) -> Choice:
        if context.mix is None:
            return Choice(mix=self._mix, limit=min(context.limit, share), width=context.width)
        return Choice(mix=context.mix, limit=context.limit, width=context.width)
