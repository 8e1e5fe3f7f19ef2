"""Medusa heads (Cai et al. 2024): each guesses one further token from the same hidden state, independent of the others.

With the target's hidden state of token t_n, whose own output layer gives t_{n+1}, head j (from 0) gives t_{n+2+j}: in a
tree below the known token t_{n+1}, head j speaks about depth j + 1. Invariant: stateless, no keys and values.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn
from torch.nn import functional

from drafters.heads.layers import Linear
from drafters.heads.target import FINAL_HIDDEN, FeatureSpec, TargetModel


class ResidualBlock(nn.Module):
    """``x + silu(W x + b)``."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = Linear(size, size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[R, E] to [R, E]."""
        return x + functional.silu(self.linear(x))


class MedusaHeads(nn.Module):
    """``{i}.{l}.linear.*`` for the blocks of head i and ``{i}.{blocks}.weight`` for its output layer.

    Without output layers of their own (``share_lm_head``, an extension of Espalier) all heads use the target's.
    """

    kind: ClassVar[str] = "medusa"
    features: ClassVar[FeatureSpec] = FINAL_HIDDEN

    def __init__(self, target: TargetModel, *, num_heads: int, num_blocks: int, share_lm_head: bool) -> None:
        super().__init__()
        self._target = target
        self.num_heads = num_heads
        self.num_blocks = num_blocks
        self.share_lm_head = share_lm_head
        size = target.hidden_size
        for head in range(num_heads):
            layers: list[nn.Module] = [ResidualBlock(size) for _ in range(num_blocks)]
            if not share_lm_head:
                layers.append(Linear(size, target.vocab_size, bias=False))
            self.add_module(str(head), nn.Sequential(*layers))

    def logits(self, head: int, hidden_RE: torch.Tensor) -> torch.Tensor:
        """Logits [R, V] of head ``head`` for hidden states after the target's final norm."""
        out: torch.Tensor = self.get_submodule(str(head))(hidden_RE)
        return self._target.logits(out) if self.share_lm_head else out
