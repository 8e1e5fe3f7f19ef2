"""What all recurrent heads share: pairs in, states out, for committed tokens and for levels of a tree.

    tokens     t_0   t_1   t_2   t_3         t_3 is the last known token, node 0 of the tree
    features   h_0   h_1   h_2    -          of the target, known once it has computed a token
    pairs            (t_1,h_0) (t_2,h_1) (t_3,h_2)
    position            0         1         2        of the pair in the rotary embedding: that of its feature
    guesses for        t_2       t_3       t_4       what the pair's state says comes next

Below node 0 the target has computed nothing yet, so that a guess is paired with the head's own state of its parent.
Invariant: a pair's state depends on the pairs before it and, for guesses, on its ancestors; `extend` and `expand`
differ in where the second half of a pair comes from, in nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from drafters.heads.attention import HeadCache, Pass, PassAttention
from drafters.heads.layers import LayerShape, Rotation
from drafters.heads.target import FeatureSpec, TargetModel


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CommittedPairs:
    """Committed tokens and the features of the tokens before them, packed over ragged sequences.

    Attributes:
        rows: whose they are; ``parents`` is None.
        tokens_T: int64.
        positions_T: int64, each the token's position less 1.
        features_TF: of the target at those positions, as the head's `FeatureSpec` says.
    """

    rows: Pass
    tokens_T: torch.Tensor
    positions_T: torch.Tensor
    features_TF: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GuessedPairs:
    """One level of tree nodes over several sequences, each with its parent's state.

    Attributes:
        rows: whose they are, with ``parents``.
        tokens_T: int64.
        positions_T: int64, each the node's position less 1.
        states_TE: what `extend` or `expand` returned for each node's parent.
    """

    rows: Pass
    tokens_T: torch.Tensor
    positions_T: torch.Tensor
    states_TE: torch.Tensor


class RecurrentHead(nn.Module, ABC):
    """A head that guesses one token and feeds its own state back for the next one.

    Attributes:
        kind: name of the format in documents and errors.
        features: what it reads of the target.
        shape: of its layers.
        num_layers: how many have keys and values.
    """

    kind: ClassVar[str]
    shape: LayerShape
    features: FeatureSpec
    num_layers: int

    def __init__(self, shape: LayerShape, target: TargetModel, features: FeatureSpec, num_layers: int) -> None:
        super().__init__()
        self.shape = shape
        self.features = features
        self.num_layers = num_layers
        self._target = target

    @property
    def feature_width(self) -> int:
        """F, numbers of the target that it reads for one token."""
        return self.features.width(self._target.hidden_size)

    @property
    def target_ids(self) -> torch.Tensor | None:
        """int64 [Vd], the target's id of each id of the draft vocabulary; None where both are the same."""
        return None

    def extend(self, pairs: CommittedPairs, cache: HeadCache) -> torch.Tensor:
        """States [T, E] of committed pairs, whose keys and values stay."""
        assert pairs.rows.parents is None
        fused_TE = self.fuse(pairs.features_TF)
        return self.step(pairs.tokens_T, fused_TE, pairs.positions_T, cache.begin(pairs.rows))

    def expand(self, pairs: GuessedPairs, cache: HeadCache) -> torch.Tensor:
        """States [T, E] of guesses, whose keys and values the next `extend` overwrites."""
        assert pairs.rows.parents is not None
        return self.step(pairs.tokens_T, pairs.states_TE, pairs.positions_T, cache.begin(pairs.rows))

    def step(
        self, tokens_T: torch.Tensor, states_TE: torch.Tensor, positions_T: torch.Tensor, attention: PassAttention
    ) -> torch.Tensor:
        """One recurrence: the states after tokens whose predecessors have ``states_TE``."""
        return self.join(tokens_T, states_TE, self.shape.rope.rotation(positions_T, states_TE.dtype), attention)

    def fuse(self, features_TF: torch.Tensor) -> torch.Tensor:
        """The target's features [T, F] as states [T, E]."""
        return features_TF

    @abstractmethod
    def join(
        self, tokens_T: torch.Tensor, states_TE: torch.Tensor, rotation: Rotation, attention: PassAttention
    ) -> torch.Tensor:
        """Token and state through the layers to the next state [T, E]."""

    @abstractmethod
    def logits(self, states_RE: torch.Tensor) -> torch.Tensor:
        """What comes after tokens with these states: logits [R, Vd] over the draft vocabulary."""

    def _embed(self, tokens_T: torch.Tensor) -> torch.Tensor:
        own: nn.Embedding | None = getattr(self, "embed_tokens", None)
        embedded: torch.Tensor = self._target.embed(tokens_T) if own is None else own(tokens_T)
        return embedded
