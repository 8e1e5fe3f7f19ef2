"""The head of EAGLE-1 and EAGLE-2 (Li et al. 2024): one decoder layer that continues the target's last hidden states.

``state' = layer(fc([embedding ; state]))``, read by the target's own output layer. Neither the first layer's attention
input nor the result is normalised. Invariant: a state is a guess of the target's hidden state after its final norm.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn

from drafters.heads.attention import PassAttention
from drafters.heads.base import RecurrentHead
from drafters.heads.layers import DecoderLayer, Layers, LayerShape, Linear, Rotation
from drafters.heads.target import FINAL_HIDDEN, TargetModel


class EagleHead(RecurrentHead):
    """``fc.*``, ``layers.{i}.*`` (the first one without input_layernorm), perhaps ``embed_tokens.weight``."""

    kind: ClassVar[str] = "eagle"

    def __init__(
        self, shape: LayerShape, target: TargetModel, *, num_layers: int, fc_bias: bool, own_embedding: bool
    ) -> None:
        super().__init__(shape, target, FINAL_HIDDEN, num_layers)
        if own_embedding:
            self.embed_tokens = nn.Embedding(target.vocab_size, shape.hidden_size)
        self.fc = Linear(2 * shape.hidden_size, shape.hidden_size, bias=fc_bias)
        self.layers = Layers(DecoderLayer(shape, input_norm=index > 0) for index in range(num_layers))

    def join(
        self, tokens_T: torch.Tensor, states_TE: torch.Tensor, rotation: Rotation, attention: PassAttention
    ) -> torch.Tensor:
        """See `RecurrentHead.join`."""
        x_TE: torch.Tensor = self.fc(torch.cat((self._embed(tokens_T), states_TE), dim=-1))
        for index, layer in enumerate(self.layers):
            x_TE = layer(x_TE, rotation, attention, index)
        return x_TE

    def logits(self, states_RE: torch.Tensor) -> torch.Tensor:
        """The target's output layer on the states as they are."""
        return self._target.logits(states_RE)
