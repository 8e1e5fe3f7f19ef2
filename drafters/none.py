"""The drafter that guesses nothing: a tree of one node, which is plain decoding."""

from __future__ import annotations

from collections.abc import Sequence

from drafters.protocol import Draft, DraftContext


class NoDrafter:
    """Plain decoding as the degenerate case of speculation."""

    def propose(self, contexts: Sequence[DraftContext]) -> list[Draft]:
        """Node 0 alone for every context."""
        return [Draft.nothing(context.tokens[-1]) for context in contexts]

    def observe(self, sequence_id: int, tokens: Sequence[int], accepted: int) -> None:
        """Nothing to learn."""

    def forget(self, sequence_id: int) -> None:
        """Nothing to drop."""
