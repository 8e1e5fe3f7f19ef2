"""What the engine tells a drafter that keeps state of its own beside the target's keys and values.

Such state lives in the target's slots (see `SlotCache` and `DraftModel`), so that blocks, their sharing and the prefix
cache serve both. Invariant: a companion learns of every token that the target computed before the step ends, and of
every fork, copy and end; what it was not told of, it may take to be unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from drafters.heads.attention import HeadCache
from drafters.heads.target import FeatureSpec


class TargetStates(Protocol):
    """Hidden states of the target, of one step."""

    def features(self, spec: FeatureSpec, rows: Sequence[int]) -> torch.Tensor:
        """What ``spec`` names [N, F], of these rows of the step."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Computed:
    """Tokens of one sequence that the target computed in a step and that stay.

    Attributes:
        sequence_id: whose.
        tokens: all that are known now, at least one more than is computed.
        blocks: its block table; covers every computed token.
        first: position of the first of them.
        rows: their rows among the step's `TargetStates`, in the order of positions.
    """

    sequence_id: int
    tokens: Sequence[int]
    blocks: Sequence[int]
    first: int
    rows: Sequence[int]


class Companion(Protocol):
    """State beside the target's."""

    @property
    def features(self) -> FeatureSpec | None:
        """What it reads of the target; None where it reads tokens alone."""
        ...

    def follow(self, computed: Sequence[Computed], states: TargetStates) -> None:
        """At the end of a step: what was computed, sequences that ended in it included."""
        ...

    def fork(self, leader_id: int, follower_id: int) -> None:
        """The follower shares what the leader has up to here, blocks included."""
        ...

    def forget(self, sequence_id: int) -> None:
        """The sequence ended."""
        ...

    def copy_slots(self, sources: torch.Tensor, targets: torch.Tensor) -> None:
        """The target copied these slots to those (a block that is copied on write)."""
        ...


class SlotCache(HeadCache, Protocol):
    """Keys and values of a head in the target's slots: the pair of a token lives in the slot of the token."""

    def place(self, sequence_id: int, blocks: Sequence[int], pairs: int) -> None:
        """Where a sequence lives, and up to which token (position) its pairs are there; guesses are gone."""
        ...

    def forget(self, sequence_id: int) -> None:
        """Drop what `place` said."""
        ...

    def keep_features(self, blocks: Sequence[int], features_NF: torch.Tensor) -> None:
        """Keep with each of these full blocks the feature of its last token."""
        ...

    def feature(self, block: int) -> torch.Tensor:
        """The feature [F] of a full block's last token."""
        ...

    def copy_slots(self, sources: torch.Tensor, targets: torch.Tensor) -> None:
        """Copy slots to slots; all sources are read before any target is written."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftRows:
    """Tokens of one sequence for a draft model to compute.

    Attributes:
        blocks: block table; covers ``start + len(tokens)`` slots.
        start: tokens before these whose keys and values it has.
        tokens: to compute, written to the slots from ``start`` on.
        parents: per token its parent among them, -1 for none; None where they are a chain.
    """

    blocks: Sequence[int]
    start: int
    tokens: Sequence[int]
    parents: tuple[int, ...] | None = None


class DraftModel(Protocol):
    """A language model over the target's slots."""

    def logits(self, rows: Sequence[DraftRows], wanted: Sequence[int]) -> torch.Tensor:
        """Logits [R, V] of the ``wanted`` ones among all tokens of ``rows``, which are numbered through."""
        ...

    def compute(self, rows: Sequence[DraftRows]) -> None:
        """Write keys and values alone."""
        ...

    def copy_slots(self, sources: torch.Tensor, targets: torch.Tensor) -> None:
        """Copy slots to slots, where its keys and values are not the target's."""
        ...
