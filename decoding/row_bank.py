"""The distinct mask rows of one vocabulary, numbered.

Grammars of one vocabulary make equal rows again and again (the inside of a string, the end of a number); here they
become one object, and its number tells a device where its copy of the row lies, so that each row travels there once.

Invariant: rows that are alive are distinct and have distinct numbers, and a number changes hands only after its row is
gone; the bank itself keeps none alive, so that whoever caches rows bounds the memory.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TypeAlias
from weakref import ref

import numpy as np
import numpy.typing as npt

from decoding.masks import MaskRow

Bits: TypeAlias = npt.NDArray[np.uint32]
Freeze: TypeAlias = Callable[[Bits, int], MaskRow]
"""The row of some bits with a number; raises where no bit is set."""


class RowBank:
    """Rows by their bits."""

    def __init__(self, freeze: Freeze) -> None:
        self._freeze = freeze
        self._rows: dict[int, tuple[ref[MaskRow], ...]] = {}
        self._free: list[int] = []
        self._size = 0

    @property
    def size(self) -> int:
        """All numbers in use are below it: the room that a device needs."""
        return self._size

    @property
    def num_rows(self) -> int:
        """Rows that are alive."""
        return self._size - len(self._free)

    def row(self, bits: Bits) -> MaskRow:
        """The one row with these bits (uint32 [W]), which must not be written to afterwards."""
        words = bits.tobytes()
        key = hash(words)
        alike = self._rows.get(key, ())
        for reference in alike:
            row = reference()
            if row is not None and row.bits_W.tobytes() == words:
                return row
        index = self._free[0] if self._free else self._size
        row = self._freeze(bits, index)
        if self._free:
            heappop(self._free)
        else:
            self._size += 1
        self._rows[key] = (*alike, ref(row, lambda gone: self._release(key, gone, index)))
        return row

    def _release(self, key: int, gone: ref[MaskRow], index: int) -> None:
        left = tuple(reference for reference in self._rows[key] if reference is not gone)
        if left:
            self._rows[key] = left
        else:
            del self._rows[key]
        heappush(self._free, index)
