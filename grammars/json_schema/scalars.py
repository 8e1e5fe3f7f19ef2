"""States inside strings, numbers and keys: rows of `grammars.regular` automata, renumbered.

One automaton recognises several formulas at once, each under its place in the list as a tag, which becomes the outcome.
Invariant: the formulas of one automaton exclude each other, so that an accepted text has one tag.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from grammars.json_schema.languages import Languages
from grammars.matching.tables import NO_OUTCOME, Tables
from grammars.regular.automaton import Automaton

_QUOTE = b'"'[0]

StateOf = Callable[[Tables, tuple[object, ...]], int]
"""The number of a named state."""


class ScalarStates:
    """Rows of automata, each known by (index of the automaton, its own state)."""

    def __init__(self, languages: Languages) -> None:
        self._languages = languages
        self._automata: list[Automaton] = []
        self._quoted: list[bool] = []
        self._strings: dict[tuple[tuple[int, int], ...], int] = {}
        self._keys: dict[tuple[tuple[int, int], ...], int] = {}
        self._numbers: dict[tuple[tuple[int, int], ...], int] = {}

    def strings(self, tables: Tables, state_of: StateOf, formulas: tuple[int, ...]) -> list[tuple[int, int]]:
        """Codes of the first byte of a string; outcome i where it is in ``formulas[i]``."""
        tagged = tuple((tag, formula) for tag, formula in enumerate(formulas) if not self._languages.is_empty(formula))
        if not tagged:
            return []
        index = self._strings.get(tagged)
        if index is None:
            index = self._strings[tagged] = self._add(self._languages.strings_automaton(tagged), quoted=True)
        return [(byte, state_of(tables, ("scalar", index, after))) for byte, after in self._first(index)]

    def numbers(self, tables: Tables, state_of: StateOf, formulas: tuple[int, ...]) -> list[tuple[int, int]]:
        """Codes of the first byte of a number; outcome i where it is in ``formulas[i]``."""
        languages = self._languages
        tagged = tuple((tag, formula) for tag, formula in enumerate(formulas) if not languages.is_empty_number(formula))
        if not tagged:
            return []
        index = self._numbers.get(tagged)
        if index is None:
            index = self._numbers[tagged] = self._add(self._languages.numbers_automaton(tagged), quoted=False)
        return [(byte, state_of(tables, ("scalar", index, after))) for byte, after in self._first(index)]

    def keys(self, tagged: tuple[tuple[int, int], ...]) -> tuple[int, int]:
        """The automaton of keys in their one spelling, and its state after the opening quote."""
        index = self._keys.get(tagged)
        if index is None:
            index = self._keys[tagged] = self._add(self._languages.keys_automaton(tagged), quoted=True)
        automaton = self._automata[index]
        return index, int(automaton.row(automaton.start)[_QUOTE])

    def row(self, tables: Tables, state_of: StateOf, index: int, inner: int) -> tuple[npt.NDArray[np.int32], int]:
        """The row of a state, and its final outcome."""
        automaton = self._automata[index]
        quoted = self._quoted[index]
        inner_row = automaton.row(inner)
        row = np.zeros(256, dtype=np.int32)
        for after in np.unique(inner_row).tolist():
            if after:
                closes = quoted and automaton.accepting(after)
                code = (
                    tables.exit(self._tag(automaton, after)) if closes else state_of(tables, ("scalar", index, after))
                )
                row[inner_row == after] = code
        final = NO_OUTCOME if quoted or not automaton.accepting(inner) else self._tag(automaton, inner)
        return row, final

    def targets(self, index: int, inner: int) -> dict[int, int]:
        """The automaton's own next states by byte."""
        row = self._automata[index].row(inner)
        return {byte: int(row[byte]) for byte in np.flatnonzero(row).tolist()}

    def _first(self, index: int) -> list[tuple[int, int]]:
        automaton = self._automata[index]
        row = automaton.row(automaton.start)
        return [(byte, int(row[byte])) for byte in np.flatnonzero(row).tolist()]

    def _add(self, automaton: Automaton, *, quoted: bool) -> int:
        self._automata.append(automaton)
        self._quoted.append(quoted)
        return len(self._automata) - 1

    def _tag(self, automaton: Automaton, state: int) -> int:
        (tag,) = automaton.tags(state)
        return tag
