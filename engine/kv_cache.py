"""The tensors that hold keys and values, block by block.

Invariant: slot s of layer l is ``keys[l].view(-1, H, D)[s]``; who owns a slot is the block pool's affair alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

BLOCK_SIZE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class KVShape:
    """Key and value shape of one layer: KV heads, head size of keys and of values."""

    num_heads: int
    head_dim: int

    def bytes_per_block(self, dtype: torch.dtype) -> int:
        """Bytes that one block of this layer takes, keys and values together."""
        return 2 * BLOCK_SIZE * self.num_heads * self.head_dim * dtype.itemsize


class KVCache:
    """Keys and values of every layer: tensors [num_blocks, BLOCK_SIZE, H, D]."""

    def __init__(self, shapes: tuple[KVShape, ...], num_blocks: int, dtype: torch.dtype, device: torch.device) -> None:
        def empty(shape: KVShape) -> torch.Tensor:
            return torch.zeros(num_blocks, BLOCK_SIZE, shape.num_heads, shape.head_dim, dtype=dtype, device=device)

        self.num_blocks = num_blocks
        self.keys = [empty(shape) for shape in shapes]
        self.values = [empty(shape) for shape in shapes]

    def write(self, layer: int, slots_T: torch.Tensor, keys_THD: torch.Tensor, values_THD: torch.Tensor) -> None:
        """Store one step's keys and values of a layer at their slots."""
        self.keys[layer].flatten(0, 1).index_copy_(0, slots_T, keys_THD)
        self.values[layer].flatten(0, 1).index_copy_(0, slots_T, values_THD)

    def move(self, source_slots: torch.Tensor, target_slots: torch.Tensor) -> None:
        """Copy slots to slots in every layer (an accepted path to the front; a block that is copied on write)."""
        for tensor in (*self.keys, *self.values):
            flat = tensor.flatten(0, 1)
            flat[target_slots] = flat[source_slots]
