"""Moves over bytes, from the arcs of terms over minterms.

A state means a term (between two characters) or a place inside a character. Invariant: whatever a move leads to can be
completed to a word, and the moves of a state lead to different states.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from grammars.regular.derivatives import Arcs, Derivatives
from grammars.regular.liveness import Liveness
from grammars.regular.utf8 import Block, leads

Place = tuple[Block, Arcs]
"""Inside a character, and the term after it for each guard; the guard 0 stands for all code points of the block."""
Meaning = int | Place
Bytes = NDArray[np.intp]
Moves = list[tuple[Bytes, Meaning]]


class ByteMoves:
    """The moves of terms of one table."""

    def __init__(self, derivatives: Derivatives, liveness: Liveness) -> None:
        self._step = derivatives.step
        self._live = liveness.live
        self._alphabet = derivatives.terms.alphabet
        self._leads = leads(self._alphabet)
        self._beyond_ascii = self._alphabet.within(128, 0x10FFFF)

    def moves(self, meaning: Meaning) -> Moves:
        """Every meaning that one more byte leads to, and the bytes that do."""
        if isinstance(meaning, int):
            return self._between(meaning)
        block, arcs = meaning
        if arcs[0][0] == 0:
            target = arcs[0][1] if block.left == 1 else (Block(block.left - 1, 0, 0x80, 0xBF), arcs)
            return [(_bytes(block.first, block.last), target)]
        return self._inside(block, arcs)

    def _between(self, term: int) -> Moves:
        moves: Moves = []
        beyond = []
        for guard, target in self._step(term):
            if self._live(target):
                ascii_bytes = self._alphabet.ascii_bytes(guard)
                if len(ascii_bytes):
                    moves.append((ascii_bytes, target))
                if guard & self._beyond_ascii:
                    beyond.append((guard, target))
        for lead in self._leads if beyond else ():
            place = _place(lead.block, lead.guard, beyond)
            if place is not None:
                moves.append((lead.bytes, place))
        return moves

    def _inside(self, block: Block, arcs: Arcs) -> Moves:
        """Runs of bytes whose code points lie in one minterm lead to one term; only what is between is looked into."""
        bytes_to: dict[Meaning, list[int]] = {}
        byte, size = block.first, block.part_size
        while byte <= block.last:
            low, high = block.part(byte)
            minterm, end = self._alphabet.run(low)
            following = byte + 1
            if end >= high:
                following = min(block.last + 1, byte + (end - low + 1) // size)
                place = _place(block.after(byte), 1 << minterm, arcs) if minterm >= 0 else None
            else:
                place = _place(block.after(byte).alike(self._alphabet), self._alphabet.within(low, high), arcs)
            if place is not None:
                bytes_to.setdefault(place, []).extend(range(byte, following))
            byte = following
        return [(np.array(members, np.intp), meaning) for meaning, members in bytes_to.items()]


def _place(block: Block, inside: int, arcs: Iterable[tuple[int, int]]) -> Meaning | None:
    """What a block with the minterms ``inside`` means, None where no arc has one of them."""
    kept = tuple((guard & inside, target) for guard, target in arcs if guard & inside)
    if not kept:
        return None
    if len(kept) == 1 and kept[0][0] == inside:
        return (block.uniform(), ((0, kept[0][1]),)) if block.left else kept[0][1]
    return block, kept


@cache
def _bytes(first: int, last: int) -> Bytes:
    return np.arange(first, last + 1, dtype=np.intp)
