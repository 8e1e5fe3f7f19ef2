"""What the engine asks of a drafter.

Invariant: a drafter is a source of guesses. A wrong, illegal or malformed guess costs time and changes nothing else;
the engine prunes what the grammar forbids before it computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from decoding.tree import DraftTree
from grammars.protocol import Matcher


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftContext:
    """One sequence that wants guesses.

    Attributes:
        sequence_id: stable over the sequence's life.
        tokens: prompt and committed output; the last one is node 0 of the tree.
        num_prompt: how many of them are the prompt.
        matcher: the constraint's state after `tokens`, or None. Read and fork it, never advance it.
        limit: most nodes that the tree may have, node 0 included; at least 1.
    """

    sequence_id: int
    tokens: Sequence[int]
    num_prompt: int
    matcher: Matcher | None
    limit: int


class Drafter(Protocol):
    """A source of draft trees, asked for the whole batch at once."""

    def propose(self, contexts: Sequence[DraftContext]) -> list[DraftTree]:
        """One tree per context, in order, with node 0 carrying the last known token."""
        ...

    def observe(self, sequence_id: int, tokens: Sequence[int], accepted: int) -> None:
        """Learn that ``tokens`` were committed, of which the first ``accepted`` had been guessed."""
        ...

    def forget(self, sequence_id: int) -> None:
        """The sequence ended; drop what was kept for it."""
        ...
