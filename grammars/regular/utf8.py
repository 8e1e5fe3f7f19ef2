"""How UTF-8 splits code points into bytes (RFC 3629, section 4).

    first byte   bytes left   code points            first continuation byte
    C2..DF       1            U+0080 .. U+07FF       80..BF
    E0           2            U+0800 .. U+0FFF       A0..BF
    E1..EF       2            U+1000 .. U+FFFF       80..BF (ED: 80..9F, no surrogates)
    F0           3            U+10000 .. U+3FFFF     90..BF
    F1..F4       3            U+40000 .. U+10FFFF    80..BF (F4: 80..8F)

Invariant: no overlong form and no surrogate is ever spelled.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grammars.regular.alphabet import Alphabet


@dataclass(frozen=True, slots=True, kw_only=True)
class Leads:
    """First bytes that lead to the same minterms in the same way."""

    bytes: np.ndarray
    left: int
    base: int
    """The code point whose continuation bytes are all 80; one byte only where the guard has several minterms."""
    first: int
    last: int
    """The range of the first continuation byte."""
    guard: int


def leads(alphabet: Alphabet) -> list[Leads]:
    """The first bytes of multi-byte characters, grouped."""
    groups: dict[tuple[int, int, int, int, int], list[int]] = {}
    for byte, left, base, first, last in _lead_bytes():
        size = 64 ** (left - 1)
        guard = alphabet.within(base + (first - 0x80) * size, base + (last - 0x7F) * size - 1)
        several = guard & (guard - 1)
        groups.setdefault((left, base if several else 0, first, last, guard), []).append(byte)
    return [
        Leads(bytes=np.array(members, np.intp), left=left, base=base, first=first, last=last, guard=guard)
        for (left, base, first, last, guard), members in groups.items()
    ]


def _lead_bytes() -> list[tuple[int, int, int, int, int]]:
    special = {0xE0: (0xA0, 0xBF), 0xED: (0x80, 0x9F), 0xF0: (0x90, 0xBF), 0xF4: (0x80, 0x8F)}
    found = []
    for byte in range(0xC2, 0xF5):
        left = 1 if byte < 0xE0 else 2 if byte < 0xF0 else 3
        base = (byte & (0x3F >> left)) << (6 * left)
        found.append((byte, left, base, *special.get(byte, (0x80, 0xBF))))
    return found
