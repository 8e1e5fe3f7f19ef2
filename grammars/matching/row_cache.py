"""Rows by configuration, least recently used first to go.

Invariant: the distinct rows that are kept take at most `MAX_BYTES`, and equal ones are one object.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from decoding.masks import MaskRow
from grammars.matching.automaton import Configuration
from grammars.matching.repeats import WholeToken
from grammars.matching.rows import freeze
from grammars.matching.walk import Bits

MAX_BYTES = 32 << 20


class SharedRow(NamedTuple):
    """The row of a configuration, and the tokens in it that a memory may forbid by themselves."""

    row: MaskRow
    whole: tuple[WholeToken, ...]


class RowCache:
    """The rows of one grammar."""

    def __init__(self, vocab_size: int, max_bytes: int = MAX_BYTES) -> None:
        self._vocab_size = vocab_size
        self._max_bytes = max_bytes
        self._rows: OrderedDict[Configuration, SharedRow] = OrderedDict()
        self._by_bits: dict[bytes, MaskRow] = {}
        self._uses: dict[int, int] = {}
        self.num_bytes = 0

    def get(self, configuration: Configuration) -> SharedRow | None:
        """The row of a configuration, where it is kept."""
        shared = self._rows.get(configuration)
        if shared is not None:
            self._rows.move_to_end(configuration)
        return shared

    def put(self, configuration: Configuration, bits: Bits, whole: tuple[WholeToken, ...]) -> SharedRow:
        """Keep the row of a configuration; ``bits`` must not be written to afterwards."""
        key = bits.tobytes()
        row = self._by_bits.get(key)
        if row is None:
            row = self._by_bits[key] = freeze(bits, self._vocab_size)
            self.num_bytes += 2 * bits.nbytes  # the key is as large as the row
        self._uses[id(row)] = self._uses.get(id(row), 0) + 1
        shared = self._rows[configuration] = SharedRow(row, whole)
        while self.num_bytes > self._max_bytes and len(self._rows) > 1:
            self._drop()
        return shared

    def _drop(self) -> None:
        _, (row, _) = self._rows.popitem(last=False)
        self._uses[id(row)] -= 1
        if not self._uses[id(row)]:
            del self._uses[id(row)]
            del self._by_bits[row.bits_W.tobytes()]
            self.num_bytes -= 2 * row.bits_W.nbytes
