"""Where the queries of one step find their keys: the host-side arithmetic of the reference backend.

Sequences with few new tokens (decodes, draft trees, short chunks) are padded into groups of equal shape, so that a
group is one call; a long chunk is a call of its own. A group of Q query rows and K keys per sequence, for a sequence
with context c whose window of w positions starts at key ``first = max(0, c - w + 1)``:

    key j      first ........ c - 1 | c ..... c + n - 1 | padding
    query i    visible (in window)  | own ancestors     | hidden

Padding keys read the sequence's own first visible slot, never a block of somebody else: a hidden key has weight 0, but
0 times an infinity would still be NaN. Invariant: Q and K depend on the sequence alone, so that its arithmetic, bit for
bit, does not depend on its batch-mates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from engine.forward import ForwardInput
from engine.kv_cache import BLOCK_SIZE

MAX_PADDED_QUERIES = 64
"""A chain with more new tokens is attended on its own; a tree is always padded."""

_SMALLEST_KEYS = 64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Group:
    """Sequences padded to one shape: S of them, Q query rows and K keys each.

    Attributes:
        queries_P: packed index of every padded query row, P = S * Q; a padding row repeats the sequence's first token.
            None where the rows are all packed tokens in order, as in a batch of decodes.
        slots_N: cache slot of every padded key, N = S * K.
        visible_SQK: bool, which keys each row sees.
    """

    queries_P: torch.Tensor | None
    slots_N: torch.Tensor
    visible_SQK: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chunk:
    """One long chain.

    Attributes:
        start: packed index of its first token.
        stop: packed index after its last token.
        slots_K: cache slots of the keys that any of its tokens sees, the own ones last.
    """

    start: int
    stop: int
    slots_K: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layout:
    """All of one step's attention for one window.

    Attributes:
        groups: the padded sequences.
        chunks: the long chains.
        order_T: for each packed token, its row in the concatenation of all groups' padded rows and all chunks' rows;
            None where that is the identity.
    """

    groups: tuple[Group, ...]
    chunks: tuple[Chunk, ...]
    order_T: torch.Tensor | None


def make_layout(batch: ForwardInput, window: int | None) -> Layout:
    """Sort the sequences of ``batch`` into groups and chunks, keeping the keys that ``window`` lets anybody see."""
    device = batch.tokens_T.device
    members: dict[tuple[int, int], list[int]] = {}
    long: list[int] = []
    for sequence, parents in enumerate(batch.parents):
        queries = batch.starts[sequence + 1] - batch.starts[sequence]
        if parents is None and queries > MAX_PADDED_QUERIES:
            long.append(sequence)
            continue
        keys = batch.context_lens[sequence] + queries - _first_key(batch.context_lens[sequence], window)
        members.setdefault((_power_of_two(queries), padded_keys(keys)), []).append(sequence)

    groups = tuple(_group(batch, window, shape, np.array(sequences)) for shape, sequences in members.items())
    chunks = tuple(_chunk(batch, window, sequence) for sequence in long)
    order = np.empty(batch.starts[-1], dtype=np.int64)
    row = 0
    for (queries, _), sequences in members.items():
        for sequence in sequences:
            start, stop = batch.starts[sequence], batch.starts[sequence + 1]
            order[start:stop] = np.arange(row, row + stop - start)
            row += queries
    for chunk in chunks:
        order[chunk.start : chunk.stop] = np.arange(row, row + chunk.stop - chunk.start)
        row += chunk.stop - chunk.start
    return Layout(groups=groups, chunks=chunks, order_T=None if _is_identity(order, row) else _upload(order, device))


def padded_keys(keys: int) -> int:
    """K for a sequence with this many keys: the next of 64, 96, 128, 192, 256, 384, ... (at most half is padding)."""
    size = max(_SMALLEST_KEYS, _power_of_two(keys))
    return 3 * size // 4 if size > _SMALLEST_KEYS and keys <= 3 * size // 4 else size


def _power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length()


def _first_key(context: int, window: int | None) -> int:
    return 0 if window is None else max(0, context - window + 1)


def _group(batch: ForwardInput, window: int | None, shape: tuple[int, int], sequences: npt.NDArray[np.int64]) -> Group:
    num_queries, num_keys = shape
    starts = np.array(batch.starts)[sequences]
    counts = np.array(batch.starts)[sequences + 1] - starts
    contexts = np.array(batch.context_lens)[sequences]
    firsts = np.array([_first_key(context, window) for context in contexts.tolist()])

    rows_Q = np.arange(num_queries)
    own_SQ = np.where(rows_Q < counts[:, None], rows_Q, 0)
    # The keys' token indices within their sequences, which are positions for the context and for chains.
    keys_SK = firsts[:, None] + np.arange(num_keys)
    real_SK = keys_SK < (contexts + counts)[:, None]
    visible_SQK = (keys_SK[:, None, :] <= (contexts[:, None] + own_SQ)[:, :, None]) & real_SK[:, None, :]
    query_positions_SQ = contexts[:, None] + own_SQ
    key_positions_SK = keys_SK.copy()
    for index, sequence in enumerate(sequences.tolist()):
        parents = batch.parents[sequence]
        if parents is None:
            continue
        ancestors, depths = _ancestors(parents)
        count, context = len(parents), int(contexts[index])
        own = slice(context - int(firsts[index]), context - int(firsts[index]) + count)
        visible_SQK[index, :, own] = ancestors[own_SQ[index]]
        query_positions_SQ[index] = context + depths[own_SQ[index]]
        key_positions_SK[index, own] = context + depths
    if window is not None:
        visible_SQK &= key_positions_SK[:, None, :] > query_positions_SQ[:, :, None] - window

    device = batch.tokens_T.device
    tables_SB = batch.block_tables_SB
    if len(sequences) < batch.num_sequences:
        tables_SB = tables_SB.index_select(0, _upload(sequences, device))
    keys = _upload(np.where(real_SK, keys_SK, firsts[:, None]), device)
    blocks_SK = tables_SB.gather(1, torch.div(keys, BLOCK_SIZE, rounding_mode="floor"))
    queries_P = (starts[:, None] + own_SQ).reshape(-1)
    return Group(
        queries_P=None if _is_identity(queries_P, batch.starts[-1]) else _upload(queries_P, device),
        slots_N=(blocks_SK * BLOCK_SIZE + keys % BLOCK_SIZE).view(-1),
        visible_SQK=_upload(visible_SQK, device),
    )


def _chunk(batch: ForwardInput, window: int | None, sequence: int) -> Chunk:
    start, stop = batch.starts[sequence], batch.starts[sequence + 1]
    context = batch.context_lens[sequence]
    keys = torch.arange(_first_key(context, window), context + stop - start, device=batch.tokens_T.device)
    blocks = batch.block_tables_SB[sequence].index_select(0, torch.div(keys, BLOCK_SIZE, rounding_mode="floor"))
    return Chunk(start=start, stop=stop, slots_K=blocks * BLOCK_SIZE + keys % BLOCK_SIZE)


def _ancestors(parents: Sequence[int]) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """Bool [n, n], row i marking node i and its ancestors, and the depth of each node."""
    ancestors = np.eye(len(parents), dtype=bool)
    for node, parent in enumerate(parents):
        if parent >= 0:
            ancestors[node] |= ancestors[parent]
    return ancestors, ancestors.sum(axis=1) - 1


def _is_identity(indices: npt.NDArray[np.int64], size: int) -> bool:
    return len(indices) == size and bool((indices == np.arange(size)).all())


def _upload(array: npt.NDArray[np.generic], device: torch.device) -> torch.Tensor:
    return torch.from_numpy(array).to(device, non_blocking=True)
