"""What the engine's process is told to build, named so that the parent can refer to it without importing torch.

Invariant: importing this module imports no torch; calling its functions does.
"""

from __future__ import annotations

from decoding.errors import ModelLoadError
from engine.config import EngineConfig
from engine.loading.files import ModelFiles
from grammars.matching.trie import TokenTrie
from grammars.vocabulary import load_vocabulary
from service.engine_loop import Engine


def load_tokens(files: ModelFiles) -> TokenTrie:
    """The tokens of a model. Raises ModelLoadError where its tokenizer is not supported."""
    from engine.models.config import read_transformers_config  # noqa: PLC0415 - imports torch

    size = read_transformers_config(files.directory).get_text_config().vocab_size
    return TokenTrie.of(load_vocabulary(files.tokenizer, eos_token_ids=files.eos_token_ids, size=size))


def build(config: EngineConfig, files: ModelFiles, trie: TokenTrie) -> Engine:
    """The engine of a model. Raises ModelLoadError."""
    from engine.build import build_engine  # noqa: PLC0415 - imports torch

    engine = build_engine(config, files, num_tokens=trie.vocabulary.num_tokens)
    if engine.card.vocab_size != trie.vocabulary.size:
        widths = f"{engine.card.vocab_size} logits, but config.json says {trie.vocabulary.size}"
        raise ModelLoadError(f"the model has {widths}; fetch the model again")
    return engine
