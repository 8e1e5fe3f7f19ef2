"""The composition root: the only file that names concrete classes.

Invariant: everything that an engine needs is made here and handed in; nothing below looks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq

from decoding.pipeline import LogitsPipeline
from drafters.alternatives import AlternativesSource
from drafters.choice.by_cost import CostChooser
from drafters.choice.costs import CostTable
from drafters.choosing import Chooser, FixedChooser
from drafters.composition import Composition
from drafters.forced import ForcedSource
from drafters.ngram import NgramSource
from drafters.none import NoDrafter
from drafters.protocol import Drafter
from drafters.source import Source
from drafters.speculation import OF_THE_GRAMMAR, Offer, read_drafters
from drafters.spelling import Speller, Tokenizer
from drafters.suffix import SuffixSource
from engine.blocks import BlockPool
from engine.build_drafters import NO_NEURAL_DRAFTERS, NeuralDrafters, load_neural
from engine.companions import Companions
from engine.config import EngineConfig, ModelCard
from engine.costs import step_costs
from engine.device import batch_tokens, compute_threads, resolve_device, resolve_dtype
from engine.drafting import GuardedDrafter
from engine.engine import Engine
from engine.kv_cache import BLOCK_SIZE, KVCache
from engine.loading.encoder import TextEncoder
from engine.loading.files import ModelFiles
from engine.loading.progress import NoProgress, ProgressReporter
from engine.loading.weights import load_model
from engine.memory import num_blocks
from engine.models.base import CausalModel
from engine.runner import ModelRunner
from engine.scheduler import Scheduler, SchedulerLimits
from engine.stats import Totals
from engine.threads import ComputeThreads
from engine.verifiers import make_verifier
from grammars.vocabulary import Vocabulary, load_vocabulary

DRAFT_ROWS = 32
"""Rows of a step that the drafts of undecided requests share where their number is fixed: past this, a CPU's forward
pass grows with every row."""


def build_engine(
    config: EngineConfig,
    files: ModelFiles,
    *,
    vocabulary: Vocabulary | None = None,
    costs: CostTable | None = None,
    progress: ProgressReporter | None = None,
) -> Engine:
    """Load the model and build an engine around it; sets the number of compute threads of this process.

    ``vocabulary`` spares reading the tokenizer's tokens again, ``costs`` measuring what a step costs.
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
    vocabulary = vocabulary or load_vocabulary(
        files.tokenizer, eos_token_ids=files.eos_token_ids, size=model.vocab_size
    )
    sources = make_sources(read_drafters(config.drafters), TextEncoder(files.tokenizer), vocabulary)
    return assemble(
        config,
        model,
        name=files.name,
        eos_token_ids=files.eos_token_ids,
        num_tokens=vocabulary.num_tokens,
        sources=sources,
        neural=load_neural(config, files, model),
        threads=threads,
        costs=costs,
        progress=progress,
    )


def make_sources(names: Seq[str], tokenizer: Tokenizer, vocabulary: Vocabulary) -> list[Source]:
    """The drafters that need no model, in the order of their turns."""
    speller = Speller(tokenizer, vocabulary.tokens)
    makers: dict[str, Callable[[], Source]] = {
        "forced": lambda: ForcedSource(speller, vocabulary.tokens),
        "alternatives": lambda: AlternativesSource(speller),
        "suffix": SuffixSource,
        "ngram": NgramSource,
    }
    return [makers[name]() for name in names]


def assemble(
    config: EngineConfig,
    model: CausalModel,
    *,
    name: str,
    eos_token_ids: tuple[int, ...],
    num_tokens: int | None = None,
    sources: Seq[Source] = (),
    neural: NeuralDrafters = NO_NEURAL_DRAFTERS,
    drafter: Drafter | None = None,
    threads: ComputeThreads | None = None,
    costs: CostTable | None = None,
    progress: ProgressReporter | None = None,
) -> Engine:
    """An engine around a loaded model.

    ``sources`` guess in this order, those of ``neural`` behind the ones that know the grammar; ``drafter`` guesses
    instead of what would be composed of them. Without ``costs`` they are measured where somebody chooses by them.
    """
    context_length = min(config.context_length or model.context_length, model.context_length)
    blocks = num_blocks(
        config,
        shapes=model.kv_shapes,
        dtype=model.dtype,
        device=model.device,
        context_length=context_length,
        beside=neural.bytes_per_block(model.dtype),
    )
    cache = KVCache(model.kv_shapes, blocks, model.dtype, model.device)
    companions = neural.sources(model, cache, vocab_size=num_tokens or model.vocab_size, eos_token_ids=eos_token_ids)
    known = [source for source in sources if source.name in OF_THE_GRAMMAR]
    sources = [*known, *companions, *(source for source in sources if source not in known)]
    offer = Offer(
        loaded=tuple(source.name for source in sources),
        draft_tokens=config.draft_tokens if sources or drafter else 0,
        tree_width=config.tree_width,
        max_draft_tokens=config.max_draft_tokens,
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
        offer=offer,
        verifier=config.verifier,
    )
    verifier = make_verifier(config.verifier, LogitsPipeline(num_tokens or model.vocab_size, eos_token_ids))
    totals = Totals()
    limits = SchedulerLimits(
        max_batch_tokens=card.max_batch_tokens,
        max_running=config.max_running,
        chunked_prefill=config.chunked_prefill,
        prefix_cache=config.prefix_cache,
        watermark=config.watermark,
    )
    followers = Companions(companions)
    runner = ModelRunner(model, cache, threads, followers)
    names = [source.name for source in sources]
    chooser: Chooser = FixedChooser(names, rows=DRAFT_ROWS)
    if names and not config.reproducible_drafts:
        chooser = CostChooser(names, costs or step_costs(config, runner, progress or NoProgress()))
    drafter = drafter or (Composition(sources, chooser) if sources else NoDrafter())
    return Engine(
        card=card,
        config=config,
        runner=runner,
        scheduler=Scheduler(BlockPool(blocks), limits, totals),
        verifier=verifier,
        drafter=GuardedDrafter(drafter, num_tokens or model.vocab_size, chooser, draws=verifier.wants_drawn_guesses),
        companions=followers,
        totals=totals,
    )
