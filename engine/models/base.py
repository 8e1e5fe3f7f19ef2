"""What the engine needs of a model.

Invariant: a model is a function of a `ForwardInput` and the KV cache; it keeps no state between steps.
"""

from __future__ import annotations

from typing import Protocol

import torch

from engine.forward import ForwardInput
from engine.kv_cache import KVCache, KVShape


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

    def hidden(self, batch: ForwardInput, cache: KVCache) -> torch.Tensor:
        """Final-norm hidden states [T, E] of one step; writes the step's keys and values into the cache."""
        ...

    def logits(self, hidden_RE: torch.Tensor) -> torch.Tensor:
        """Logits [R, V] of hidden states, in the compute dtype."""
        ...
