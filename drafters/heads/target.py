"""What a head needs of the model that it drafts for.

Invariant: a head never changes the target and never copies its weights: embedding and output layer are lent as
functions, so that it does not matter how the target stores them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TargetModel:
    """The target as heads see it.

    Attributes:
        name: what users call it; heads that name another model are reported.
        model_type: its family in transformers, e.g. ``llama``.
        hidden_size: E of the target.
        vocab_size: V, the padded width of its logits.
        num_layers: L.
        dtype: of hidden states, and of the head.
        device: where both live.
        embed: token ids [T] to embeddings [T, E].
        logits: hidden states after the final norm [R, E] to logits [R, V].
        tokenizer: its tokenizer.json, or None where there is none to compare with.
    """

    name: str
    model_type: str
    hidden_size: int
    vocab_size: int
    num_layers: int
    dtype: torch.dtype
    device: torch.device
    embed: Callable[[torch.Tensor], torch.Tensor]
    logits: Callable[[torch.Tensor], torch.Tensor]
    tokenizer: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureSpec:
    """Which hidden states of the target a head reads for a token.

    Attributes:
        layer_inputs: indices (0 to L - 1) of layers whose *input* is read, concatenated in this order. Empty for the
            output of the final norm, the one that the output layer reads.
    """

    layer_inputs: tuple[int, ...] = ()

    def width(self, hidden_size: int) -> int:
        """F, the numbers per token, for a target of width ``hidden_size``."""
        return hidden_size * max(1, len(self.layer_inputs))


FINAL_HIDDEN = FeatureSpec()
"""The output of the target's final norm."""
