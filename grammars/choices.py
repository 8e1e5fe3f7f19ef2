"""A list of choices as a trie whose states are made when a text first comes there.

With the choices sorted, the ones that start with the same bytes are neighbours: a state is the range of choices that
the text so far may become, and the number of bytes that they share.

    choices   "no" "not" "yes"        state (0, 3, 0)  before the text
    index      0    1     2                 (0, 2, 1)  after "n"      (2, 3, 1)  after "y"

Invariant: the completed texts are exactly the choices. Sorting is all the work there is before the first mask.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from decoding.errors import ConstraintError
from grammars.characters import is_within
from grammars.matching.constraint import CompiledConstraint
from grammars.matching.tables import NO_OUTCOME, Tables
from grammars.regular.charset import ANY, CharSet

FIELD = "constraint.choices"


def compile_choices(values: Iterable[str], characters: CharSet = ANY) -> CompiledConstraint:
    """Texts that are one of ``values``: distinct, not empty, at least one (as `ConstraintSpec` makes sure).

    Those that have other characters than ``characters`` are left out; raises ConstraintError where none is left.
    """
    encoded = tuple(sorted(value.encode() for value in values if is_within(value, characters)))
    if not encoded:
        raise ConstraintError(FIELD, "has no choice that the model can write: its vocabulary lacks tokens for them")
    digest = hashlib.sha256(b"choices")
    for value in encoded:
        digest.update(len(value).to_bytes(8, "little"))
        digest.update(value)
    return CompiledConstraint(text_key=digest.hexdigest(), language=ChoicesLanguage(sorted_values=encoded))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoicesLanguage:
    """The texts ``sorted_values``: UTF-8, distinct, in ascending order."""

    sorted_values: tuple[bytes, ...]

    def source(self) -> ChoicesSource:
        """A fresh source of states."""
        return ChoicesSource(self.sorted_values)


class ChoicesSource:
    """`grammars.matching.tables.Source` of the trie."""

    def __init__(self, sorted_values: tuple[bytes, ...]) -> None:
        self._values = sorted_values
        self._ranges: dict[int, tuple[int, int, int]] = {}
        self._by_rest: dict[bytes, int] = {}
        self._end = 0

    def start(self, tables: Tables) -> tuple[int, int]:
        """The state before the text, and the handler that nothing but the end comes after."""
        self._end = tables.add_state()
        tables.set_row(self._end, (), final=0)
        return self._state(tables, 0, len(self._values), 0), tables.add_handler(1)

    def expand(self, tables: Tables, state: int) -> None:
        """One successor for each distinct next byte of the state's choices."""
        low, high, depth = self._ranges[state]
        is_complete = len(self._values[low]) == depth  # the shortest comes first
        codes: list[tuple[int, int]] = []
        first = low + is_complete
        while first < high:
            byte, end = self._values[first][depth], high
            if self._values[high - 1][depth] != byte:
                end = bisect_right(self._values, byte, first, high, key=lambda value: value[depth])
            codes.append((byte, self._state(tables, first, end, depth + 1)))
            first = end
        tables.set_row(state, codes, final=0 if is_complete else NO_OUTCOME)

    def resolve(self, tables: Tables, handler: int, outcome: int) -> int:  # noqa: ARG002 - there is one handler
        """After a choice nothing follows."""
        return self._end

    def _state(self, tables: Tables, low: int, high: int, depth: int) -> int:
        if high - low > 1:
            return self._new_state(tables, low, high, depth)
        rest = self._values[low][depth:]  # all that is left to be written: equal rests are one state
        state = self._by_rest.get(rest)
        if state is None:
            state = self._by_rest[rest] = self._new_state(tables, low, high, depth)
        return state

    def _new_state(self, tables: Tables, low: int, high: int, depth: int) -> int:
        state = tables.add_state()
        self._ranges[state] = (low, high, depth)
        return state
