"""What the engine's process does to come up, named so that the parent can refer to it without importing torch.

Invariant: importing this module imports no torch; calling its functions does.
"""

from __future__ import annotations

import os
from dataclasses import replace

from decoding.errors import ModelLoadError
from engine.config import EngineConfig
from engine.loading.files import ModelFiles
from grammars.matching.trie import TokenTrie
from grammars.vocabulary import load_vocabulary
from service.engine_loop import Engine


def find(config: EngineConfig) -> ModelFiles:
    """Have the model on disk: fetched and converted, with progress on standard error. Raises ModelLoadError."""
    from engine.loading.progress import ProgressBars  # noqa: PLC0415 - the parent needs none of it
    from engine.loading.resolve import resolve_model  # noqa: PLC0415 - imports torch

    return resolve_model(
        config.model, cache_dir=config.cache_dir, load_format=config.load_format, progress=ProgressBars()
    )


def load_tokens(files: ModelFiles) -> TokenTrie:
    """The tokens of a model. Raises ModelLoadError where its tokenizer is not supported."""
    from engine.models.config import read_transformers_config  # noqa: PLC0415 - imports torch

    width = read_transformers_config(files.directory).get_text_config().vocab_size
    vocabulary = load_vocabulary(files.tokenizer, eos_token_ids=files.eos_token_ids, size=width)
    # Masks are as wide as what can be drawn: the logits pipeline cuts the padding off before it looks at them.
    return TokenTrie.of(replace(vocabulary, size=vocabulary.num_tokens))


def build(config: EngineConfig, files: ModelFiles, trie: TokenTrie) -> Engine:
    """The engine of a model. Raises ModelLoadError."""
    # Read when torch loads OpenMP: threads that wait spin for some 0.1 ms, then sleep (engine/README.md has figures).
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")
    from engine.build import build_engine  # noqa: PLC0415 - imports torch
    from engine.loading.progress import ProgressBars  # noqa: PLC0415 - the parent needs none of it

    num_tokens = trie.vocabulary.num_tokens
    engine = build_engine(config, files, vocabulary=trie.vocabulary, progress=ProgressBars())
    if engine.card.vocab_size < num_tokens:
        raise ModelLoadError(f"the model has {engine.card.vocab_size} logits for {num_tokens} tokens; fetch it again")
    return engine
