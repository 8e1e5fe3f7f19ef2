"""Where a head's keys and values live: a protocol, and the attention of one sequence.

A head computes *pairs*: the pair of token t_p (p >= 1) joins it with the target's feature of the token before it. The
queries of a pass see every committed pair of their sequence, the guesses above them, and themselves:

    committed pairs        guesses of the tree            a row of guess 2 sees
    t_1 t_2 ... t_n        0 ── 1                         t_1 ... t_n, 0 and 2
                           └─── 2

Invariant: a pair depends on tokens up to its own and nothing after, so that whoever keeps it in the slot of its token
may share it between sequences that begin alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch.nn import functional


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """Whose rows one pass computes. Rows of sequence s follow those of s - 1.

    Attributes:
        sequence_ids: distinct, one per sequence.
        counts: rows of each, at least 1.
        parents: None for committed pairs, which are a chain below those before them. Else guesses: for each sequence
            and row the number of its parent among the sequence's guesses, or -1 below the last committed pair. Guesses
            are numbered from 0 in the order of computing; rows that all hang below the committed pair start a new tree.
    """

    sequence_ids: tuple[int, ...]
    counts: tuple[int, ...]
    parents: tuple[tuple[int, ...], ...] | None = None

    def __post_init__(self) -> None:
        assert len(self.sequence_ids) == len(self.counts) == len(set(self.sequence_ids))
        assert all(count >= 1 for count in self.counts)
        assert self.parents is None or tuple(len(row) for row in self.parents) == self.counts


class PassAttention(Protocol):
    """Attention of one pass, asked once per layer in order."""

    def attend(
        self, layer: int, q_THD: torch.Tensor, k_TKD: torch.Tensor, v_TKD: torch.Tensor, scale: float
    ) -> torch.Tensor:
        """Keep the rows' keys and values [T, Hk, D], then attend: [T, H, D].

        Query head h reads KV head h // (H / Hk).
        """
        ...


class HeadCache(Protocol):
    """Keys and values of a head's layers, by sequence.

    A committed pass overwrites the guesses of its sequences; nothing has to be freed in between.
    """

    def begin(self, rows: Pass) -> PassAttention:
        """Reserve room for the rows, whose keys and values `PassAttention.attend` brings."""
        ...


def attend(
    q_QHD: torch.Tensor,
    k_KHD: torch.Tensor,
    v_KHD: torch.Tensor,
    *,
    scale: float,
    visible: torch.Tensor | None,
    causal: bool = False,
) -> torch.Tensor:
    """Scaled dot-product attention of one sequence, [Q, H, D]; ``visible`` is bool [Q, K], None for everything."""
    out_HQD = functional.scaled_dot_product_attention(
        q_QHD.transpose(0, 1).unsqueeze(0),
        k_KHD.transpose(0, 1).unsqueeze(0),
        v_KHD.transpose(0, 1).unsqueeze(0),
        attn_mask=visible,
        is_causal=causal,
        scale=scale,
        enable_gqa=True,
    )
    return out_HQD.squeeze(0).transpose(0, 1)


def chain_mask(start: int, count: int) -> torch.Tensor:
    """Row i of a chunk sees the ``start`` pairs before it and its first i + 1 rows: [count, start + count]."""
    return torch.ones(count, start + count, dtype=torch.bool).tril_(start)


def tree_mask(length: int, parents: Sequence[int], count: int) -> torch.Tensor:
    """The last ``count`` guesses see every committed pair, their ancestors and themselves: bool [count, all pairs]."""
    visible = torch.zeros(count, length + len(parents), dtype=torch.bool)
    visible[:, :length] = True
    first = len(parents) - count
    for row in range(count):
        guess = first + row
        while guess >= 0:
            visible[row, length + guess] = True
            guess = parents[guess]
    return visible
