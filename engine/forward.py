"""The packed input of one forward pass, for chunks of prompts, single decodes and draft trees alike.

Tokens of all sequences lie one after the other. Sequence s owns packed indices ``starts[s] .. starts[s+1]``:

    packed     | s=0: chunk of 3   | s=1: tree of 4      | s=2: decode |
    index        0    1    2         3    4    5    6      7
    parents     -1    0    1        -1    0    1    0     -1             (relative to the sequence's own start)
    positions   32   33   34         9   10   11   10     70             (context + depth)
    slots        one KV slot per packed token, in order

One visibility rule: a token sees its sequence's context (the ``context_lens[s]`` tokens computed before), itself, and
its ancestors. For a chain that is the causal mask. Invariant: slots are distinct, and every context slot is computed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardInput:
    """One step's work (shapes: T packed tokens, S sequences, B blocks of the longest table, R rows of logits).

    Attributes:
        tokens_T: int64 token ids.
        positions_T: int64 absolute positions, for rotary embedding and sliding windows.
        slots_T: int64 KV slots (block * block_size + offset) that the tokens' keys and values are written to.
        starts: S + 1 packed offsets (host).
        context_lens: per sequence, tokens whose KV was valid before this step (host).
        parents: per sequence, the parents relative to its start, -1 for none; None where it is a chain (host).
        block_tables_SB: int64 block ids, padded with 0; covers context and this step's tokens.
        rows_R: int64 packed indices of the tokens whose logits are wanted, ascending.
    """

    tokens_T: torch.Tensor
    positions_T: torch.Tensor
    slots_T: torch.Tensor
    starts: tuple[int, ...]
    context_lens: tuple[int, ...]
    parents: tuple[tuple[int, ...] | None, ...]
    block_tables_SB: torch.Tensor
    rows_R: torch.Tensor

    @property
    def num_sequences(self) -> int:
        """S."""
        return len(self.context_lens)
