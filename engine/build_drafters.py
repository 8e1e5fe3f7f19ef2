"""The part of the composition root that names drafters with a model: heads and draft models.

They are loaded before the KV cache is sized, because what they keep per block counts, and made after it. Invariant: a
head or model that does not fit the target is a ModelLoadError at start, which names the mend, never a bad guess.
"""

from __future__ import annotations

import re
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from decoding.errors import ModelLoadError
from drafters.checkpoints.checks import compare_tokenizers
from drafters.checkpoints.load import Head, load_head
from drafters.companion import Companion, DraftModel
from drafters.heads.medusa import MedusaHeads
from drafters.heads.target import TargetModel
from drafters.medusa import MedusaSource
from drafters.model import ModelSource
from drafters.recurrent import RecurrentSource
from drafters.source import Source
from engine.companions import EarlyExit, OwnDraftModel
from engine.config import EngineConfig
from engine.draft_cache import PagedHeadCache
from engine.kv_cache import BLOCK_SIZE, KVCache, KVShape
from engine.loading.files import ModelFiles
from engine.loading.resolve import resolve_model
from engine.loading.weights import load_model
from engine.models.base import CausalModel
from engine.models.llama import LlamaModel

_SELF = re.compile(r"self:(\d+)")
_NAMES = {"eagle": "eagle", "eagle3": "eagle", "mtp": "mtp", "medusa": "medusa"}
"""Kind of head to the drafter's name."""


class CompanionSource(Source, Companion, Protocol):
    """A source that keeps pace with the target."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NeuralDrafters:
    """What was loaded.

    Attributes:
        heads: by the name of their drafter.
        model: a draft model, or the number of the target's own first layers; None for neither.
        depth: longest guess in tokens.
    """

    heads: dict[str, Head]
    model: CausalModel | int | None
    depth: int

    def bytes_per_block(self, dtype: torch.dtype) -> int:
        """Memory that one block takes beside the target's."""
        total = 0
        for head in self.heads.values():
            if not isinstance(head, MedusaHeads):
                total += PagedHeadCache.bytes_per_block(
                    _shape(head), head.num_layers, feature_width=_width(head), dtype=dtype
                )
        if self.model is not None and not isinstance(self.model, int):
            total += sum(shape.bytes_per_block(self.model.dtype) for shape in self.model.kv_shapes)
        return total

    def sources(
        self, target: CausalModel, cache: KVCache, *, vocab_size: int, eos_token_ids: Seq[int]
    ) -> list[CompanionSource]:
        """The drafters, over the slots of the target's ``cache``; ``vocab_size`` is the tokenizer's true size."""
        made: list[CompanionSource] = []
        for name, head in self.heads.items():
            if isinstance(head, MedusaHeads):
                made.append(
                    MedusaSource(head, vocab_size=target.vocab_size, num_tokens=vocab_size, eos_token_ids=eos_token_ids)
                )
                continue
            made.append(
                RecurrentSource(
                    name,
                    head,
                    PagedHeadCache(
                        _shape(head),
                        head.num_layers,
                        num_blocks=cache.num_blocks,
                        feature_width=_width(head),
                        dtype=target.dtype,
                        device=target.device,
                    ),
                    vocab_size=target.vocab_size,
                    num_tokens=vocab_size,
                    eos_token_ids=eos_token_ids,
                    block_size=BLOCK_SIZE,
                    depth=self.depth,
                )
            )
        if self.model is not None:
            made.append(self._model_source(self.model, target, cache, vocab_size, eos_token_ids))
        return made

    def _model_source(
        self, model: CausalModel | int, target: CausalModel, cache: KVCache, vocab_size: int, eos_token_ids: Seq[int]
    ) -> ModelSource:
        draft: DraftModel
        if isinstance(model, int):
            assert isinstance(target, LlamaModel)
            draft, context_length = EarlyExit(target, cache, model, vocab_size), target.context_length
        else:
            draft, context_length = OwnDraftModel(model, cache.num_blocks, vocab_size), model.context_length
        return ModelSource(
            draft,
            vocab_size=vocab_size,
            eos_token_ids=eos_token_ids,
            block_size=BLOCK_SIZE,
            context_length=context_length,
            depth=self.depth,
            is_part_of_target=isinstance(model, int),
        )


NO_NEURAL_DRAFTERS = NeuralDrafters(heads={}, model=None, depth=1)


def load_neural(config: EngineConfig, files: ModelFiles, target: CausalModel) -> NeuralDrafters:
    """Load what the configuration names. Raises ModelLoadError where it does not fit the target."""
    heads: dict[str, Head] = {}
    for path in config.draft_heads.split(",") if config.draft_heads else ():
        head = load_head(Path(path).expanduser(), _as_target(files, target)).to(target.device, target.dtype).eval()
        name = _NAMES[head.kind]
        if name in heads:
            raise ModelLoadError(f"{path} is a second head for the drafter {name!r}; give one of each in --draft-heads")
        heads[name] = head
    return NeuralDrafters(heads=heads, model=_load_draft_model(config, files, target), depth=config.draft_depth)


def _load_draft_model(config: EngineConfig, files: ModelFiles, target: CausalModel) -> CausalModel | int | None:
    if config.draft_model is None:
        return None
    if match := _SELF.fullmatch(config.draft_model):
        return _own_layers(int(match[1]), target)
    found = resolve_model(config.draft_model, cache_dir=config.cache_dir, load_format=config.load_format)
    compare_tokenizers(found.tokenizer, files.tokenizer)
    return load_model(
        found, dtype=target.dtype, device=target.device, load_format=config.load_format, attention=config.attention
    )


def _own_layers(num_layers: int, target: CausalModel) -> int:
    if not isinstance(target, LlamaModel):
        raise ModelLoadError(
            f"{target.architecture} runs through transformers, whose first layers cannot be computed alone; "
            "name a smaller model in --draft-model instead of self:N"
        )
    total = len(target.kv_shapes)
    if not 1 <= num_layers < total:
        raise ModelLoadError(f"--draft-model self:{num_layers} is outside [self:1, self:{total - 1}]")
    return num_layers


def _as_target(files: ModelFiles, model: CausalModel) -> TargetModel:
    with torch.inference_mode():
        width = model.embed(torch.zeros(1, dtype=torch.int64, device=model.device)).shape[-1]
    return TargetModel(
        name=files.name,
        model_type=model.architecture,
        hidden_size=width,
        vocab_size=model.vocab_size,
        num_layers=len(model.kv_shapes),
        dtype=model.dtype,
        device=model.device,
        embed=model.embed,
        logits=model.logits,
        tokenizer=files.tokenizer,
    )


def _shape(head: Head) -> KVShape:
    assert not isinstance(head, MedusaHeads)
    return KVShape(num_heads=head.shape.num_kv_heads, head_dim=head.shape.head_dim)


def _width(head: Head) -> int:
    assert not isinstance(head, MedusaHeads)
    return head.feature_width
