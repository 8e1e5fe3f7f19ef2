"""Rows by configuration, least recently used first to go.

Invariant: the distinct rows that are kept take at most `MAX_BYTES`; equal ones are one object, as in their bank.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from decoding.masks import MaskRow
from decoding.row_bank import RowBank
from grammars.matching.automaton import Configuration
from grammars.matching.repeats import WholeToken
from grammars.matching.walk import Bits

MAX_BYTES = 32 << 20
KEPT = 0.75
"""The part of the memory that is left once rows had to be dropped: what was derived from them goes with them, so they
are not dropped one by one."""


class SharedRow(NamedTuple):
    """The row of a configuration, and the tokens in it that a memory may forbid by themselves."""

    row: MaskRow
    whole: tuple[WholeToken, ...]


class RowCache:
    """The rows of one grammar.

    Attributes:
        num_bytes: memory of the distinct rows; those that another grammar keeps too count here as well.
        num_drops: how often rows were dropped.
    """

    def __init__(self, bank: RowBank, max_bytes: int = MAX_BYTES) -> None:
        self._bank = bank
        self._max_bytes = max_bytes
        self._rows: OrderedDict[Configuration, SharedRow] = OrderedDict()
        self._uses: dict[int, int] = {}
        self.num_bytes = 0
        self.num_drops = 0

    def get(self, configuration: Configuration) -> SharedRow | None:
        """The row of a configuration, where it is kept."""
        shared = self._rows.get(configuration)
        if shared is not None:
            self._rows.move_to_end(configuration)
        return shared

    def put(self, configuration: Configuration, bits: Bits, whole: tuple[WholeToken, ...]) -> SharedRow:
        """Keep the row of a configuration; ``bits`` must not be written to afterwards."""
        row = self._bank.row(bits)
        uses = self._uses.get(id(row), 0)
        if not uses:
            self.num_bytes += row.bits_W.nbytes
        self._uses[id(row)] = uses + 1
        shared = self._rows[configuration] = SharedRow(row, whole)
        if self.num_bytes > self._max_bytes:
            self.num_drops += 1
            while self.num_bytes > KEPT * self._max_bytes and len(self._rows) > 1:
                self._drop()
        return shared

    def _drop(self) -> None:
        _, (row, _) = self._rows.popitem(last=False)
        self._uses[id(row)] -= 1
        if not self._uses[id(row)]:
            del self._uses[id(row)]
            self.num_bytes -= row.bits_W.nbytes
