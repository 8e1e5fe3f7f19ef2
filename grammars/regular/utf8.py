"""How UTF-8 splits code points into bytes (RFC 3629, section 4).

    first byte   bytes left   code points            next byte
    C2..DF       1            U+0080 .. U+07FF       80..BF
    E0           2            U+0800 .. U+0FFF       A0..BF
    E1..EF       2            U+1000 .. U+FFFF       80..BF (ED: 80..9F, no surrogates)
    F0           3            U+10000 .. U+3FFFF     90..BF
    F1..F4       3            U+40000 .. U+10FFFF    80..BF (F4: 80..8F)

Invariant: no overlong form and no surrogate is ever spelled.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from grammars.regular.alphabet import Alphabet


class Block(NamedTuple):
    """A place inside a character: bytes left, the code point if they were all 80, and the range of the next byte."""

    left: int
    base: int
    first: int
    last: int

    @property
    def part_size(self) -> int:
        """Code points that are left once the next byte is known."""
        return 1 << 6 * (self.left - 1)

    def part(self, byte: int) -> tuple[int, int]:
        """First and last code point once the next byte is known."""
        low = self.base + (byte - 0x80) * self.part_size
        return low, low + self.part_size - 1

    def after(self, byte: int) -> Block:
        """The place after the next byte."""
        return Block(self.left - 1, self.part(byte)[0], 0x80, 0xBF)

    def alike(self, alphabet: Alphabet) -> Block:
        """The place with other code points that ``alphabet`` tells apart in the same way; equal for all such places."""
        first, last = self.part(self.first)[0], self.part(self.last)[1]
        return self._replace(base=self.base + alphabet.alike(first, last) - first)

    def uniform(self) -> Block:
        """The same place with its code points forgotten, for where they all lead to the same."""
        return self if self.base == 0 else Block(self.left, 0, self.first, self.last)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leads:
    """First bytes that lead to the same minterms (``guard``) in the same way."""

    bytes: NDArray[np.intp]
    block: Block
    guard: int


def leads(alphabet: Alphabet) -> tuple[Leads, ...]:
    """The first bytes of multi-byte characters, grouped."""
    beyond_ascii = alphabet.within(128, 0x10FFFF)
    if beyond_ascii & (beyond_ascii - 1) == 0:
        return tuple(replace(lead, guard=beyond_ascii) for lead in _one_minterm())
    return _grouped(
        (block.alike(alphabet), byte, alphabet.within(block.part(block.first)[0], block.part(block.last)[1]))
        for byte, block in _first_bytes()
    )


@cache
def _one_minterm() -> tuple[Leads, ...]:
    """The groups where no two characters beyond ASCII are told apart."""
    return _grouped((block, byte, 1) for byte, block in _first_bytes())


def _grouped(first_bytes: Iterable[tuple[Block, int, int]]) -> tuple[Leads, ...]:
    groups: dict[tuple[Block, int], list[int]] = {}
    for block, byte, guard in first_bytes:
        has_several = guard & (guard - 1)
        groups.setdefault((block if has_several else block.uniform(), guard), []).append(byte)
    return tuple(
        Leads(bytes=np.array(members, np.intp), block=block, guard=guard) for (block, guard), members in groups.items()
    )


@cache
def _first_bytes() -> tuple[tuple[int, Block], ...]:
    special = {0xE0: (0xA0, 0xBF), 0xED: (0x80, 0x9F), 0xF0: (0x90, 0xBF), 0xF4: (0x80, 0x8F)}
    found = []
    for byte in range(0xC2, 0xF5):
        left = 1 if byte < 0xE0 else 2 if byte < 0xF0 else 3
        base = (byte & (0x3F >> left)) << (6 * left)
        found.append((byte, Block(left, base, *special.get(byte, (0x80, 0xBF)))))
    return tuple(found)
