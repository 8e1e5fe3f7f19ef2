"""Runs a model over a paged KV cache by hand: blocks in shuffled order, chains that grow, trees that do not."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from engine.forward import ForwardInput
from engine.kv_cache import BLOCK_SIZE, KVCache
from engine.models.base import CausalModel


@dataclass
class PagedText:
    """One sequence: how many tokens are computed, and its blocks."""

    computed: int = 0
    table: list[int] = field(default_factory=list)


@dataclass
class Part:
    """What one sequence computes in a step. A chain (no parents) becomes context; a tree is forgotten."""

    text: PagedText
    tokens: Sequence[int]
    parents: tuple[int, ...] | None = None


class PagedRunner:
    """Steps of several sequences over one cache."""

    def __init__(self, model: CausalModel, num_blocks: int = 64, seed: int = 0) -> None:
        self.model = model
        self.cache = KVCache(model.kv_shapes, num_blocks, model.dtype, model.device)
        self._free = random.Random(seed).sample(range(num_blocks), num_blocks)

    def step(self, *parts: Part) -> list[torch.Tensor]:
        """Logits [n, V] of each part."""
        for part in parts:
            while len(part.text.table) * BLOCK_SIZE < part.text.computed + len(part.tokens):
                part.text.table.append(self._free.pop())
        batch = forward_input(parts, self.model.device)
        logits_TV = self.model.logits(self.model.hidden(batch, self.cache).final_TE)
        for part in parts:
            part.text.computed += len(part.tokens) if part.parents is None else 0
        return list(logits_TV.split([len(part.tokens) for part in parts]))

    def feed(self, text: PagedText, tokens: Sequence[int], sizes: Sequence[int]) -> torch.Tensor:
        """Logits [len(tokens), V], computed alone in chunks of these sizes."""
        assert sum(sizes) == len(tokens)
        rows, start = [], 0
        for size in sizes:
            rows += self.step(Part(text, tokens[start : start + size]))
            start += size
        return torch.cat(rows)


def forward_input(parts: Sequence[Part], device: torch.device) -> ForwardInput:
    """Pack the parts of one step, whose blocks are there already."""
    tokens, positions, slots, starts = [], [], [], [0]
    for part in parts:
        depths: list[int] = []
        for index in range(len(part.tokens)):
            parent = index - 1 if part.parents is None else part.parents[index]
            depths.append(depths[parent] + 1 if parent >= 0 else 0)
        tokens += part.tokens
        positions += [part.text.computed + depth for depth in depths]
        indices = range(part.text.computed, part.text.computed + len(part.tokens))
        slots += [part.text.table[i // BLOCK_SIZE] * BLOCK_SIZE + i % BLOCK_SIZE for i in indices]
        starts.append(len(tokens))
    width = max(len(part.text.table) for part in parts)
    tables = [part.text.table + [0] * (width - len(part.text.table)) for part in parts]
    return ForwardInput(
        tokens_T=torch.tensor(tokens, device=device),
        positions_T=torch.tensor(positions, device=device),
        slots_T=torch.tensor(slots, device=device),
        starts=tuple(starts),
        context_lens=tuple(part.text.computed for part in parts),
        parents=tuple(part.parents for part in parts),
        block_tables_SB=torch.tensor(tables, device=device),
        rows_R=torch.arange(len(tokens), device=device),
    )
