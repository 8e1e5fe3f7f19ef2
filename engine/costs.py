"""What a step costs on this machine: measured once per machine and model, then read from the cache.

Invariant: measuring writes to slots that no sequence owns yet, so it comes before the first request.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Sequence as Seq

import torch

from drafters.choice.costs import CostTable, load_or_measure
from engine.config import EngineConfig
from engine.forward import ForwardInput
from engine.kv_cache import BLOCK_SIZE
from engine.loading.cache import cache_root
from engine.loading.progress import ProgressReporter
from engine.runner import ModelRunner

CONTEXT = 256
"""Tokens before the rows, where the cache has room for them: attention over them is part of a step."""
REPETITIONS = 4
"""Rounds over all numbers of rows; the quickest counts, since whatever disturbs a pass makes it slower."""
BUDGET_S = 2.0
"""No further round begins after so long: steps refine the table later."""


def step_costs(config: EngineConfig, runner: ModelRunner, progress: ProgressReporter) -> CostTable:
    """The table of this machine and model, from the cache directory or measured now (some 2 s on the default model)."""
    key = _key(runner)
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()

    def measure(rows: Seq[int]) -> dict[int, float]:
        with progress.task("Measuring what steps cost") as update:
            rounds: list[list[float]] = []
            begin = time.perf_counter()
            while len(rounds) < REPETITIONS and time.perf_counter() - begin < BUDGET_S:
                update(len(rounds), REPETITIONS)
                rounds.append([_ms(runner, count) for count in rows])
            update(REPETITIONS, REPETITIONS)
        return dict(zip(rows, map(min, zip(*rounds, strict=True)), strict=True))

    return load_or_measure(cache_root(config.cache_dir) / "costs" / f"{digest[:16]}.json", key, measure)


def _key(runner: ModelRunner) -> dict[str, object]:
    """What the costs depend on. Models of equal shape cost the same, whatever their name."""
    model = runner.model
    is_cuda = model.device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(model.device) if is_cuda else _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "architecture": model.architecture,
        "parameters": model.parameters,
        "layers": len(model.kv_shapes),
        "vocabulary": model.vocab_size,
        "dtype": str(model.dtype),
    }


def _processor() -> str:
    return str(torch.cpu.get_capabilities().get("cpu_name", platform.processor()))


def _ms(runner: ModelRunner, rows: int) -> float:
    """Milliseconds of one forward pass with logits of every row."""
    batch = _dummy(runner, rows)
    start = time.perf_counter()
    logits_RV, _ = runner.forward(batch)
    logits_RV[-1, 0].item()  # waits for a device that computes on its own
    return 1e3 * (time.perf_counter() - start)


def _dummy(runner: ModelRunner, rows: int) -> ForwardInput:
    """A run of equal tokens behind a context of whatever the cache holds, in its first blocks.

    In a cache with less room blocks occur twice: what rows cost is the same, and nobody reads what they say.
    """
    device = runner.model.device
    slots = runner.cache.num_blocks * BLOCK_SIZE
    context = max(0, min(CONTEXT, slots - rows))
    blocks = torch.arange(-(-(context + rows) // BLOCK_SIZE), device=device) % runner.cache.num_blocks
    return ForwardInput(
        tokens_T=torch.zeros(rows, dtype=torch.int64, device=device),
        positions_T=torch.arange(context, context + rows, device=device),
        slots_T=torch.arange(context, context + rows, device=device) % slots,
        starts=(0, rows),
        context_lens=(context,),
        parents=(None,),
        block_tables_SB=blocks.unsqueeze(0),
        rows_R=torch.arange(rows, device=device),
    )
