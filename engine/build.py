"""The composition root: the only file that names concrete classes.

Invariant: everything that an engine needs is made here and handed in; nothing below looks for it.
"""

from __future__ import annotations

from decoding.pipeline import LogitsPipeline
from drafters.none import NoDrafter
from drafters.protocol import Drafter
from engine.blocks import BlockPool
from engine.config import EngineConfig, ModelCard
from engine.device import batch_tokens, compute_threads, resolve_device, resolve_dtype
from engine.drafting import GuardedDrafter
from engine.engine import Engine
from engine.kv_cache import BLOCK_SIZE, KVCache
from engine.loading.files import ModelFiles
from engine.loading.weights import load_model
from engine.memory import num_blocks
from engine.models.base import CausalModel
from engine.runner import ModelRunner
from engine.scheduler import Scheduler, SchedulerLimits
from engine.stats import Totals
from engine.threads import ComputeThreads


def build_engine(config: EngineConfig, files: ModelFiles, *, num_tokens: int | None = None) -> Engine:
    """Load the model and build an engine around it; sets the number of compute threads of this process.

    ``num_tokens`` is the tokenizer's true size where the logits are padded past it.
    Raises ModelLoadError where model, device and configuration do not fit together.
    """
    device = resolve_device(config.device)
    dtype = resolve_dtype(config.dtype, device)
    threads = compute_threads(config, device)
    model = load_model(
        files,
        dtype=dtype,
        device=device,
        load_format=config.load_format,
        implementation=config.implementation,
        attention=config.attention,
        seed=config.seed,
    )
    return assemble(
        config, model, name=files.name, eos_token_ids=files.eos_token_ids, num_tokens=num_tokens, threads=threads
    )


def assemble(
    config: EngineConfig,
    model: CausalModel,
    *,
    name: str,
    eos_token_ids: tuple[int, ...],
    num_tokens: int | None = None,
    drafter: Drafter | None = None,
    draft_nodes: int = 1,
    threads: ComputeThreads | None = None,
) -> Engine:
    """An engine around a loaded model.

    ``drafter`` guesses trees of at most ``draft_nodes`` nodes, the last known token included; 1 is plain decoding.
    """
    context_length = min(config.context_length or model.context_length, model.context_length)
    blocks = num_blocks(
        config, shapes=model.kv_shapes, dtype=model.dtype, device=model.device, context_length=context_length
    )
    card = ModelCard(
        name=name,
        architecture=model.architecture,
        parameters=model.parameters,
        dtype=str(model.dtype).removeprefix("torch."),
        device=str(model.device),
        vocab_size=model.vocab_size,
        context_length=min(context_length, blocks * BLOCK_SIZE),
        kv_cache_tokens=blocks * BLOCK_SIZE,
        max_batch_tokens=batch_tokens(config, model.device),
        eos_token_ids=eos_token_ids,
    )
    totals = Totals()
    limits = SchedulerLimits(
        max_batch_tokens=card.max_batch_tokens,
        max_running=config.max_running,
        chunked_prefill=config.chunked_prefill,
        prefix_cache=config.prefix_cache,
        watermark=config.watermark,
        draft_nodes=draft_nodes,
    )
    return Engine(
        card=card,
        config=config,
        runner=ModelRunner(model, KVCache(model.kv_shapes, blocks, model.dtype, model.device), threads),
        scheduler=Scheduler(BlockPool(blocks), limits, totals),
        pipeline=LogitsPipeline(num_tokens or model.vocab_size, eos_token_ids),
        drafter=GuardedDrafter(drafter or NoDrafter(), model.vocab_size),
        totals=totals,
    )
