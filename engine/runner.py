"""The model, its KV cache, and the few things that a step asks of them.

Invariant: the only file of the step that touches device memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from engine.companions import Companions
from engine.forward import ForwardInput
from engine.kv_cache import BLOCK_SIZE, KVCache
from engine.models.base import CausalModel, Hidden
from engine.threads import ComputeThreads


class Outputs(NamedTuple):
    """Logits [R, V] of a step's rows, and the hidden states of all its tokens."""

    logits_RV: torch.Tensor
    hidden: Hidden


class ModelRunner:
    """A model with the KV cache that it was given; ``threads`` adapts compute on a CPU, None leaves it alone."""

    def __init__(
        self,
        model: CausalModel,
        cache: KVCache,
        threads: ComputeThreads | None = None,
        companions: Companions | None = None,
    ) -> None:
        self.model = model
        self.cache = cache
        self._companions = companions or Companions()
        self._measured = threads.measured if threads else nullcontext

    @torch.inference_mode()
    def forward(self, batch: ForwardInput) -> Outputs:
        """Logits of the batch's rows; keys and values of its tokens are in the cache afterwards."""
        with self._measured():
            hidden = self.model.hidden(batch, self.cache, taps=self._companions.taps)
            return Outputs(self.model.logits(hidden.final_TE.index_select(0, batch.rows_R)), hidden)

    @torch.inference_mode()
    def copy_blocks(self, copies: Sequence[tuple[int, int]]) -> None:
        """Copy whole blocks, (source, target) each; all sources are read before any target is written."""
        if copies:
            blocks = torch.tensor(copies, device=self.model.device)
            slots = blocks.unsqueeze(-1) * BLOCK_SIZE + torch.arange(BLOCK_SIZE, device=self.model.device)
            sources, targets = slots[:, 0].flatten(), slots[:, 1].flatten()
            self.cache.move(sources, targets)
            self._companions.copy_slots(sources, targets)

    @torch.inference_mode()
    def move_slots(self, sources: npt.NDArray[np.int64], targets: npt.NDArray[np.int64]) -> None:
        """Copy single slots; all sources are read before any target is written."""
        device = self.model.device
        self.cache.move(torch.from_numpy(sources).to(device), torch.from_numpy(targets).to(device))
