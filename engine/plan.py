"""What one step computes, decided before anything is computed.

Invariant: every slot that the step writes belongs to a block that its sequence owns alone; nothing later in the step
can run out of memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.sequence import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One sequence's share of a step.

    Attributes:
        sequence: whose.
        chunk: known tokens that are computed, at least 1. Where they reach the end of what is known, the last of them
            is node 0 of a draft tree and a token is drawn.
        draft_nodes: most nodes of that tree, node 0 included; 0 where the chunk ends before the known tokens do.
    """

    sequence: Sequence
    chunk: int
    draft_nodes: int

    @property
    def reaches_end(self) -> bool:
        """The step draws a token for this sequence."""
        return self.draft_nodes > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One step.

    Attributes:
        works: decodes first, then chunks.
        copies: (source block, target block) that must be copied before anything is written.
        preempted: sequences that lost their blocks to this plan.
    """

    works: tuple[Work, ...]
    copies: tuple[tuple[int, int], ...] = ()
    preempted: tuple[Sequence, ...] = ()
