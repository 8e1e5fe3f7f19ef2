"""What a source may tell of a state beyond its row, so that masks need not find it out token by token.

Invariant: hints change no mask; they say in other words what walking the rows would find.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FORBIDDEN = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WordTable:
    """Byte strings, sorted, one after another.

    Attributes:
        blob: all of them.
        begins: index of each in `blob`, and the length of `blob` at the end.
        outcomes: the outcome by which each exits after its last byte, or FORBIDDEN.
    """

    blob: npt.NDArray[np.uint8]
    begins: npt.NDArray[np.int32]
    outcomes: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """States with equal keys have the same tokens above the stack, in every grammar over a vocabulary."""

    key: Hashable


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """Reads as state `base` does (0: as nothing), except for a range of words, which exit with outcomes of their own.

    Attributes:
        base: the state.
        words: a table; its words from `low` to `high` - 1 are still possible and `depth` bytes of them are read.
    """

    base: int
    words: WordTable
    low: int
    high: int
    depth: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Reads as the state `plain` between two characters of a string does, with the number of characters bounded.

    Attributes:
        plain: the state of the unbounded string; it has a `Shared` hint, and bytes into it end a character.
        most: how many characters may come; None for any number.
        least: how many must come before an exit.
    """

    plain: int
    most: int | None
    least: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Either:
    """Reads as all of `parts` together, no two of which have a text in common."""

    parts: tuple[Counted, ...]


Hint = Shared | Overlay | Counted | Either
