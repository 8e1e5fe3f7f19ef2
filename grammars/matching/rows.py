"""From bits to an immutable row, quickly.

Invariant: equal to `decoding.masks.MaskRow.from_bits` on the same bits.
"""

from __future__ import annotations

import numpy as np

from decoding.errors import GrammarStateError
from decoding.masks import SHORT_LIST, MaskRow
from grammars.matching.walk import Bits, count_bits, set_bits


def freeze(bits: Bits, vocab_size: int, index: int | None = None) -> MaskRow:
    """The row of ``bits`` (uint32 [W], none set at or past ``vocab_size``), which must not be written to afterwards,
    with its number in a bank.

    Raises GrammarStateError where no bit is set.
    """
    bits.setflags(write=False)  # first of all: compiled loops are made anew for arrays of another kind
    count = count_bits(bits)
    if count == 0:
        raise GrammarStateError("no token of the vocabulary spells what the constraint needs next")
    legal = forbidden = None
    if count <= SHORT_LIST:
        legal = np.empty(count, dtype=np.int64)
        set_bits(bits, vocab_size, True, legal)  # noqa: FBT003 - numba takes no keywords
    if vocab_size - count <= SHORT_LIST:
        forbidden = np.empty(vocab_size - count, dtype=np.int64)
        set_bits(bits, vocab_size, False, forbidden)  # noqa: FBT003 - numba takes no keywords
    return MaskRow(bits_W=bits.view(np.int32), num_legal=count, legal=legal, forbidden=forbidden, index=index)
