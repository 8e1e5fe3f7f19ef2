"""Applying masks to logits: to one host row in place, and to a tensor of rows on any device.

Invariant: a legal token keeps its logit bit for bit, a forbidden one gets -inf, whatever its logit was (NaN included).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from decoding.masks import MaskRow, num_words, pack

# Per byte of a mask row the ceilings of its eight tokens: +inf where legal, -inf where forbidden. One table look-up and
# one elementwise minimum mask a row in constant time; a select on a ragged mask mispredicts its branches.
_CEILINGS = np.where(
    np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little") == 1,
    np.float32(np.inf),
    np.float32(-np.inf),
)
_CEILINGS.setflags(write=False)


def mask_row(logits_V: npt.NDArray[np.floating], mask: MaskRow) -> None:
    """Forbid, in place, what the mask does not allow. A NaN at a legal token becomes +inf, still no finite number."""
    if mask.forbidden is not None:
        logits_V[mask.forbidden] = -np.inf
        return
    ceilings_V = _CEILINGS.take(mask.bits_W.view(np.uint8), axis=0).reshape(-1)[: len(logits_V)]
    np.fmin(logits_V, ceilings_V, out=logits_V)


def mask_logits(logits_RV: torch.Tensor, masks: Sequence[MaskRow | None], vocab_size: int) -> torch.Tensor:
    """A copy of the logits [R, V] with -inf where a row's mask forbids, and at every id from ``vocab_size`` on.

    A mask of None allows the whole vocabulary; V, the padded width, is at least ``vocab_size``.
    """
    everything_W = pack(np.ones(vocab_size, dtype=bool))
    bits_RW = np.stack([everything_W if mask is None else mask.bits_W for mask in masks])
    assert bits_RW.shape == (len(logits_RV), num_words(vocab_size))
    words_RW = torch.from_numpy(bits_RW).to(logits_RV.device)
    shifts = torch.arange(32, dtype=torch.int32, device=logits_RV.device)
    legal_RV = (((words_RW[:, :, None] >> shifts) & 1) == 1).flatten(1)[:, :vocab_size]
    forbidden_RV = torch.ones_like(logits_RV, dtype=torch.bool)
    forbidden_RV[:, :vocab_size] = ~legal_RV
    return logits_RV.masked_fill(forbidden_RV, -torch.inf)
