"""Rows of successors over bytes, from the arcs of terms over minterms.

A state means a term (between two characters) or a place inside a character. Invariant: every successor can be completed
to a word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from grammars.regular.derivatives import Arcs, Derivatives
from grammars.regular.liveness import Liveness
from grammars.regular.utf8 import Block, leads

Place = tuple[Block, Arcs]
"""Inside a character, and the term after it for each guard; the guard 0 stands for all code points of the block."""
Meaning = int | Place


class ByteRows:
    """Fills rows; ``number`` gives the number of the state with a meaning."""

    def __init__(self, derivatives: Derivatives, liveness: Liveness, number: Callable[[Meaning], int]) -> None:
        self._step = derivatives.step
        self._live = liveness.live
        self._number = number
        self._alphabet = derivatives.terms.alphabet
        self._leads = leads(self._alphabet)
        self._beyond_ascii = self._alphabet.within(128, 0x10FFFF)

    def row(self, meaning: Meaning) -> NDArray[np.int32]:
        """The successors of a state, int32 [256]."""
        row = np.zeros(256, np.int32)
        if isinstance(meaning, int):
            self._between(row, meaning)
        else:
            self._inside(row, *meaning)
        return row

    def _between(self, row: NDArray[np.int32], term: int) -> None:
        beyond = []
        for guard, target in self._step(term):
            if self._live(target):
                row[self._alphabet.ascii_bytes(guard)] = self._number(target)
                if guard & self._beyond_ascii:
                    beyond.append((guard, target))
        if beyond:
            for lead in self._leads:
                place = _place(lead.block, lead.guard, beyond)
                if place is not None:
                    row[lead.bytes] = self._number(place)

    def _inside(self, row: NDArray[np.int32], block: Block, arcs: Arcs) -> None:
        if arcs[0][0] == 0:
            target = arcs[0][1] if block.left == 1 else (block.after(0x80).anywhere(), arcs)
            row[block.first : block.last + 1] = self._number(target)
            return
        for byte in range(block.first, block.last + 1):
            inside = self._alphabet.within(*block.part(byte))
            meaning: Meaning | None
            if block.left == 1:
                meaning = next((target for guard, target in arcs if guard & inside), None)
            else:
                meaning = _place(block.after(byte), inside, arcs)
            if meaning is not None:
                row[byte] = self._number(meaning)


def _place(block: Block, inside: int, arcs: Iterable[tuple[int, int]]) -> Place | None:
    """The place at a block that holds the minterms ``inside``, None where no arc has one of them."""
    kept = tuple((guard & inside, target) for guard, target in arcs if guard & inside)
    if not kept:
        return None
    if len(kept) == 1 and kept[0][0] == inside:
        return block.anywhere(), ((0, kept[0][1]),)
    return block, kept
