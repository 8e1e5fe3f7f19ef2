"""From a plan and its draft trees to the packed tensors of one forward pass.

A sequence's chunk is a chain; where it reaches the end of what is known, the draft tree hangs below its last token,
which is node 0:

    chunk of 3, tree 0─1─2, 0─3      index in sequence   0   1   2   3   4   5
                                     node                .   .   0   1   2   3
                                     parent             -1   0   1   2   3   2

Invariant: token i of a sequence's share is written to slot ``num_computed + i`` of its block table, tree or not.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from decoding.tree import DraftTree
from engine.forward import ForwardInput
from engine.kv_cache import BLOCK_SIZE
from engine.plan import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class _Share:
    """One work's part of the packed input."""

    tokens: list[int]
    positions: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int64]
    parents: tuple[int, ...] | None


def pack(works: Seq[Work], trees: Seq[DraftTree | None], device: torch.device) -> ForwardInput:
    """Tensors for ``works``; ``trees[i]`` is the draft of a work that reaches the end, else None.

    Rows are the nodes of all trees, in order.
    """
    shares = [_share(work, tree) for work, tree in zip(works, trees, strict=True)]
    starts = np.cumsum([0, *(len(share.tokens) for share in shares)])
    rows = [np.arange(end - len(tree), end) for end, tree in zip(starts[1:], trees, strict=True) if tree is not None]
    tables = [work.sequence.blocks for work in works]
    width = max(map(len, tables))
    return ForwardInput(
        tokens_T=torch.tensor([token for share in shares for token in share.tokens], device=device),
        positions_T=_tensor([share.positions for share in shares], device),
        slots_T=_tensor([share.slots for share in shares], device),
        starts=tuple(starts.tolist()),
        context_lens=tuple(work.sequence.num_computed for work in works),
        parents=tuple(share.parents for share in shares),
        block_tables_SB=torch.tensor([table + [0] * (width - len(table)) for table in tables], device=device),
        rows_R=_tensor(rows, device),
    )


def slots_of(blocks: Seq[int], indices: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Slots of token indices of a sequence with this block table."""
    table = np.asarray(blocks, dtype=np.int64)
    return table[indices // BLOCK_SIZE] * BLOCK_SIZE + indices % BLOCK_SIZE


def _share(work: Work, tree: DraftTree | None) -> _Share:
    sequence, start = work.sequence, work.sequence.num_computed
    known = sequence.tokens[start : start + work.chunk]
    if tree is None or len(tree) == 1:
        tokens, depths, parents = known, np.arange(work.chunk), None
    else:
        root = work.chunk - 1
        tokens = [*known, *tree.tokens[1:]]
        depths = np.concatenate([np.arange(root), root + np.asarray(tree.depths())])
        hung = (*range(-1, root), *(root + parent for parent in tree.parents[1:]))
        parents = None if hung == tuple(range(-1, len(tokens) - 1)) else hung
    return _Share(
        tokens=tokens,
        positions=start + depths,
        slots=slots_of(sequence.blocks, np.arange(start, start + len(tokens))),
        parents=parents,
    )


def _tensor(parts: list[npt.NDArray[np.int64]], device: torch.device) -> torch.Tensor:
    joined = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
    return torch.from_numpy(joined).to(device)
