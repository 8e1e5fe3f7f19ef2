"""A multi-token-prediction layer (DeepSeek-V3, 2024; Qwen3-Next) as a recurrent head.

``state' = norm(layer(fc([norm(embedding) ; norm(state)])))`` with a full decoder layer. The one layer is applied again
and again, as servers do that draft further than the layers were trained for. Invariant: states are normed like the
target's last hidden states, so that features and fed-back states are of one kind.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn

from drafters.heads.attention import PassAttention
from drafters.heads.base import RecurrentHead
from drafters.heads.layers import DecoderLayer, Layers, LayerShape, Linear, Rotation
from drafters.heads.target import FINAL_HIDDEN, TargetModel


class MtpHead(RecurrentHead):
    """Named as Qwen writes it: ``fc``, ``pre_fc_norm_{embedding,hidden}``, ``layers.0``, ``norm``; perhaps own ends."""

    kind: ClassVar[str] = "mtp"

    def __init__(self, shape: LayerShape, target: TargetModel, *, own_embedding: bool, own_output: bool) -> None:
        super().__init__(shape, target, FINAL_HIDDEN, 1)
        size, eps = shape.hidden_size, shape.norm_eps
        if own_embedding:
            self.embed_tokens = nn.Embedding(target.vocab_size, size)
        self.pre_fc_norm_embedding = nn.RMSNorm(size, eps)
        self.pre_fc_norm_hidden = nn.RMSNorm(size, eps)
        self.fc = Linear(2 * size, size, bias=False)
        self.layers = Layers([DecoderLayer(shape)])
        self.norm = nn.RMSNorm(size, eps)
        self.own_output = own_output
        if own_output:
            self.lm_head = Linear(size, target.vocab_size, bias=False)

    def join(
        self, tokens_T: torch.Tensor, states_TE: torch.Tensor, rotation: Rotation, attention: PassAttention
    ) -> torch.Tensor:
        """See `RecurrentHead.join`."""
        both = (self.pre_fc_norm_embedding(self._embed(tokens_T)), self.pre_fc_norm_hidden(states_TE))
        x_TE = self.fc(torch.cat(both, dim=-1))
        for layer in self.layers:
            x_TE = layer(x_TE, rotation, attention, 0)
        out_TE: torch.Tensor = self.norm(x_TE)
        return out_TE

    def logits(self, states_RE: torch.Tensor) -> torch.Tensor:
        """The layer's own output layer, or the target's."""
        out: torch.Tensor = self.lm_head(states_RE) if self.own_output else self._target.logits(states_RE)
        return out
