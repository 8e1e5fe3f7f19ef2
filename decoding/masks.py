"""Packed token masks.

Layout: token t is legal iff bit ``t & 31`` of word ``t >> 5`` is set (little-endian bits in int32 words), as in
llguidance and xgrammar. Invariant: a `MaskRow` handed out is never empty and never changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Number = TypeVar("Number", bound=np.generic)

SHORT_LIST = 256
"""Rows with at most this many legal (or forbidden) ids carry the ids beside the bits."""


def num_words(vocab_size: int) -> int:
    """Words per row: ceil(V / 32)."""
    return (vocab_size + 31) // 32


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class MaskRow:
    """One immutable row of legal tokens.

    Attributes:
        bits_W: int32 words, read-only; ids at or past the vocabulary size have bit 0.
        num_legal: number of set bits, at least 1.
        legal: the ascending legal ids (int64) where there are at most SHORT_LIST of them, else None.
        forbidden: the ascending forbidden ids below the vocabulary size (int64) where short, else None.
        index: the row's number in the bank that it is from (`decoding.row_bank`), None where it is from none.
    """

    bits_W: npt.NDArray[np.int32]
    num_legal: int
    legal: npt.NDArray[np.int64] | None
    forbidden: npt.NDArray[np.int64] | None
    index: int | None = None

    @classmethod
    def from_bits(cls, bits_W: npt.NDArray[np.int32], vocab_size: int) -> MaskRow:
        """Freeze ``bits_W`` (int32 [W]); raises ValueError where none of its bits is set, or one past vocab_size."""
        dense = unpack(bits_W, vocab_size)
        count = int(dense.sum())
        if count == 0:
            raise ValueError("a mask row must allow at least one token")
        if unpack(bits_W, 32 * len(bits_W))[vocab_size:].any():
            raise ValueError(f"a mask row allows a token id past the vocabulary of {vocab_size}")
        return cls(
            bits_W=_frozen(bits_W),
            num_legal=count,
            legal=_frozen(np.flatnonzero(dense)) if count <= SHORT_LIST else None,
            forbidden=_frozen(np.flatnonzero(~dense)) if vocab_size - count <= SHORT_LIST else None,
        )

    @classmethod
    def from_ids(cls, ids: Iterable[int], vocab_size: int) -> MaskRow:
        """The row that allows exactly ``ids``, each in ``range(vocab_size)``."""
        return cls.from_bits(pack_ids(ids, vocab_size), vocab_size)

    def __contains__(self, token: int) -> bool:
        return bool((int(self.bits_W[token >> 5]) >> (token & 31)) & 1)


def _frozen(array: npt.NDArray[Number]) -> npt.NDArray[Number]:
    array.setflags(write=False)
    return array


def pack_ids(ids: Iterable[int], vocab_size: int) -> npt.NDArray[np.int32]:
    """Words [W] with exactly the bits of ``ids`` set."""
    dense = np.zeros(num_words(vocab_size) * 32, dtype=bool)
    for token in ids:
        if not 0 <= token < vocab_size:
            raise ValueError(f"token id {token} is outside [0, {vocab_size})")
        dense[token] = True
    return pack(dense)


def pack(dense_V: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32]:
    """Bool [V] to int32 words [W]."""
    padded = np.zeros(num_words(len(dense_V)) * 32, dtype=bool)
    padded[: len(dense_V)] = dense_V
    return np.packbits(padded, bitorder="little").view(np.int32)


def unpack(bits_W: npt.NDArray[np.int32], vocab_size: int) -> npt.NDArray[np.bool_]:
    """int32 words [W] to bool [vocab_size]."""
    return np.unpackbits(bits_W.view(np.uint8), count=vocab_size, bitorder="little").view(np.bool_)
