"""How large the KV cache is.

Invariant: the cache holds at least one sequence of the context length that the engine promises.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import psutil
import torch

from decoding.errors import ModelLoadError
from engine.config import EngineConfig
from engine.kv_cache import BLOCK_SIZE, KVShape
from engine.sequence import blocks_for

_CGROUP = Path("/sys/fs/cgroup")


def free_bytes(device: torch.device) -> int:
    """Memory that the device has left, in bytes; on a CPU within the limit of the control group, where there is one."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return min([int(psutil.virtual_memory().available), *_cgroup_left(_CGROUP)])


def num_blocks(
    config: EngineConfig,
    *,
    shapes: Sequence[KVShape],
    dtype: torch.dtype,
    device: torch.device,
    context_length: int,
    beside: int = 0,
) -> int:
    """Blocks of the KV cache.

    From the flag; else from a share of the free memory, at most what ``max_running`` sequences of full context fill.
    ``beside``: bytes that drafters keep for each block.
    Raises ModelLoadError where what the flag asks for is not free, or not even one block fits.
    """
    per_block = beside + sum(shape.bytes_per_block(dtype) for shape in shapes)
    free = free_bytes(device)
    if config.kv_cache_tokens is not None:
        blocks = blocks_for(config.kv_cache_tokens)
        if blocks * per_block > free:
            raise ModelLoadError(
                f"--kv-cache-tokens {config.kv_cache_tokens} needs {blocks * per_block:,} bytes and {free:,} are free; "
                f"at most {free // per_block * BLOCK_SIZE} tokens fit"
            )
        return blocks
    budget = int(free * config.kv_memory_fraction)
    blocks = min(budget // per_block, config.max_running * blocks_for(context_length))
    if blocks < 1:
        raise ModelLoadError(
            f"{budget} bytes for the KV cache hold not even {BLOCK_SIZE} tokens ({per_block} bytes); raise "
            "--kv-memory-fraction, free memory, or use a smaller model"
        )
    return blocks


def _cgroup_left(root: Path) -> list[int]:
    """Bytes left in the control group (version 2) of this process, as a list of none or one."""
    try:
        limit = (root / "memory.max").read_text().strip()
        used = int((root / "memory.current").read_text())
    except (OSError, ValueError):
        return []
    return [] if limit == "max" else [max(0, int(limit) - used)]
