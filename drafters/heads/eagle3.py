"""The head of EAGLE-3 (Li et al. 2025), with the later options of the speculators library.

``fc`` fuses hidden states of several depths of the target into one; the first layer attends from
``[norm(embedding) ; norm(state)]``, twice as wide as the residual stream; a norm and an output layer of its own give
logits over a draft vocabulary. Invariant: the state that is fed back is the residual stream before the last norm,
unless ``norm_output`` says otherwise; `fuse` is for the target's features alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from drafters.heads.attention import PassAttention
from drafters.heads.base import RecurrentHead
from drafters.heads.layers import DecoderLayer, Layers, LayerShape, Linear, Rotation
from drafters.heads.target import FeatureSpec, TargetModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Eagle3Options:
    """What a config.json decides beside the layers' shape.

    Attributes:
        num_layers: the first one joins embedding and state, the others are plain.
        draft_vocab_size: Vd.
        own_embedding: has ``embed_tokens.weight``, else the target's is used.
        tied: its output layer is its embedding.
        fc_bias: ``fc`` has a bias.
        fuses: has ``fc``; without it the features are states already.
        norm_before_fc: one norm over all features, ``input_norm``.
        fc_norm: a norm for each of the features, ``fc_norm.{i}``.
        norm_before_residual: the first layer's residual is the normed state.
        norm_output: the state that is fed back is the normed one.
    """

    num_layers: int = 1
    draft_vocab_size: int
    own_embedding: bool = True
    tied: bool = False
    fc_bias: bool = False
    fuses: bool = True
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_before_residual: bool = False
    norm_output: bool = False


class Eagle3Head(RecurrentHead):
    """``fc.weight``, ``layers.{i}.*`` (the first with hidden_norm), ``norm.weight``, ``lm_head.weight``, ``d2t``."""

    kind: ClassVar[str] = "eagle3"

    def __init__(
        self,
        shape: LayerShape,
        target: TargetModel,
        features: FeatureSpec,
        options: Eagle3Options,
        target_ids: torch.Tensor | None,
    ) -> None:
        """``target_ids``: see `RecurrentHead.target_ids`."""
        super().__init__(shape, target, features, options.num_layers)
        size, eps = shape.hidden_size, shape.norm_eps
        width = features.width(target.hidden_size)
        self.options = options
        self._target_ids = target_ids
        if options.own_embedding:
            self.embed_tokens = nn.Embedding(target.vocab_size, size)
        if options.norm_before_fc:
            self.input_norm = nn.RMSNorm(width, eps)
        if options.fc_norm:
            self.fc_norm = nn.ModuleList(nn.RMSNorm(target.hidden_size, eps) for _ in features.layer_inputs)
        if options.fuses:
            self.fc = Linear(width, size, bias=options.fc_bias)
        self.layers = Layers(DecoderLayer(shape, joined=index == 0) for index in range(options.num_layers))
        self.norm = nn.RMSNorm(size, eps)
        if not options.tied:
            self.lm_head = Linear(size, options.draft_vocab_size, bias=False)

    @property
    def target_ids(self) -> torch.Tensor | None:
        """See `RecurrentHead.target_ids`."""
        return self._target_ids

    def fuse(self, features_TF: torch.Tensor) -> torch.Tensor:
        """``fc`` of the features, after whichever norms there are."""
        if not self.options.fuses:
            return features_TF
        if self.options.norm_before_fc:
            features_TF = self.input_norm(features_TF)
        if self.options.fc_norm:
            parts = features_TF.chunk(len(self.fc_norm), dim=-1)
            features_TF = torch.cat([norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)], dim=-1)
        fused_TE: torch.Tensor = self.fc(features_TF)
        return fused_TE

    def join(
        self, tokens_T: torch.Tensor, states_TE: torch.Tensor, rotation: Rotation, attention: PassAttention
    ) -> torch.Tensor:
        """See `RecurrentHead.join`."""
        first, *others = self.layers
        normed_TE = first.hidden_norm(states_TE)
        read = torch.cat((first.input_layernorm(self._embed(tokens_T)), normed_TE), dim=-1)
        residual_TE = normed_TE if self.options.norm_before_residual else states_TE
        x_TE = first.around(residual_TE, read, rotation, attention, 0)
        for index, layer in enumerate(others, start=1):
            x_TE = layer(x_TE, rotation, attention, index)
        return self.norm(x_TE) if self.options.norm_output else x_TE

    def logits(self, states_RE: torch.Tensor) -> torch.Tensor:
        """Its own output layer on the normed states, [R, Vd]."""
        normed_RE = states_RE if self.options.norm_output else self.norm(states_RE)
        if self.options.tied:
            return nn.functional.linear(normed_RE, self.embed_tokens.weight)
        out: torch.Tensor = self.lm_head(normed_RE)
        return out
