"""What the engine needs of a model.

Invariant: a model is a function of a `ForwardInput` and the KV cache; it keeps no state between steps.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch

from engine.forward import ForwardInput
from engine.kv_cache import KVCache, KVShape


class Hidden(NamedTuple):
    """Hidden states of one step.

    Attributes:
        final_TE: after the final norm, what `CausalModel.logits` takes.
        taps_TE: the inputs of the layers that were asked for, in the order asked.
    """

    final_TE: torch.Tensor
    taps_TE: tuple[torch.Tensor, ...] = ()


class CausalModel(Protocol):
    """A causal language model over a paged KV cache."""

    @property
    def architecture(self) -> str:
        """Model type of its configuration, e.g. ``llama``."""
        ...

    @property
    def parameters(self) -> int:
        """Number of weights, tied ones counted once."""
        ...

    @property
    def vocab_size(self) -> int:
        """V: width of the logits, padding included."""
        ...

    @property
    def context_length(self) -> int:
        """Most positions that the model was made for."""
        ...

    @property
    def kv_shapes(self) -> tuple[KVShape, ...]:
        """Key and value shape of each layer."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """Compute dtype, which is the KV cache's too."""
        ...

    @property
    def device(self) -> torch.device:
        """Where weights and KV cache live."""
        ...

    def hidden(self, batch: ForwardInput, cache: KVCache, *, taps: tuple[int, ...] = ()) -> Hidden:
        """Hidden states of one step; writes the step's keys and values into the cache.

        ``taps`` names layers (from 0) whose inputs are wanted beside the final states: what draft heads read. L stands
        for the output of the last layer, before the final norm.
        """
        ...

    def embed(self, tokens_T: torch.Tensor) -> torch.Tensor:
        """The input [T, E] of the first layer for these tokens."""
        ...

    def logits(self, hidden_RE: torch.Tensor) -> torch.Tensor:
        """Logits [R, V] of hidden states, in the compute dtype."""
        ...


class EarlyExitModel(CausalModel, Protocol):
    """A model whose first layers can be computed alone."""

    def early_hidden(self, batch: ForwardInput, cache: KVCache, *, num_layers: int) -> torch.Tensor:
        """What the final norm makes [T, E] of the states after ``num_layers`` layers.

        Writes keys and values of these layers alone, and the same ones as `hidden`.
        """
        ...
