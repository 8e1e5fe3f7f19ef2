"""Strings of which only the length is bounded: the automaton of any string, and a count of code points beside it.

A count needs no automaton of its own: a transition into the state between two characters ends one. Invariant: the
count of a state is the number of whole code points read, and stops mattering where no bound can be missed any more;
no two parts of a state hold one length.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from grammars.json_schema.fixed import CLOSES, Kind
from grammars.json_schema.names import Names
from grammars.matching.hints import Counted, Either

Parts = tuple[tuple[int, "Length"], ...]
"""Which lengths end with which outcome."""

_QUOTE = b'"'[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """From `least` to `most` code points; no upper bound where None."""

    least: int
    most: int | None


class CountedStrings:
    """Named states of strings with bounded lengths."""

    def __init__(self, names: Names, kind: Kind) -> None:
        """``kind`` is STRING, or KEY for the canonical spelling."""
        self._names = names
        self._kind = kind
        automaton = names.fixed(kind)
        self._bytes_to = automaton.bytes_to
        self._between = int(automaton.rows[automaton.start - 1, _QUOTE])

    def start(self, parts: Parts) -> list[tuple[int, int]]:
        """Codes of the first byte."""
        return [(_QUOTE, self._state(parts, 0, self._between))]

    def expand(self, state: int, parts: Parts, count: int, inner: int) -> None:
        """Build the row of a state with ``count`` whole code points read."""
        row: npt.NDArray[np.int32] = np.zeros(256, dtype=np.int32)
        has_room = any(length.most is None or count < length.most for _, length in parts)
        for after, members in self._bytes_to[inner - 1]:
            if after == CLOSES:
                for outcome, length in parts:
                    if length.least <= count:  # what is shorter has gone from the parts
                        row[members] = self._names.tables.exit(outcome)
            elif has_room:
                row[members] = self._state(parts, count + (after == self._between), after)
        self._names.tables.set_dense_row(state, row)

    def hint(self, parts: Parts, count: int, inner: int) -> Counted | Either | None:
        """What masks may know of a state: between two characters they can count tokens instead of reading them."""
        if inner != self._between:
            return None
        hints = tuple(
            Counted(
                plain=self._names.fixed_state(self._kind, outcome, inner),
                most=None if length.most is None else length.most - count,
                least=max(length.least - count, 0),
            )
            for outcome, length in parts
        )
        return hints[0] if len(hints) == 1 else Either(parts=hints)

    def _state(self, parts: Parts, count: int, inner: int) -> int:
        parts = tuple(part for part in parts if part[1].most is None or count <= part[1].most)
        outcome, length = parts[0]
        if len(parts) == 1 and length.most is None and count >= length.least:
            return self._names.fixed_state(self._kind, outcome, inner)
        return self._names.state(("counted", self._kind, parts, count, inner))
