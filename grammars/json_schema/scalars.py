"""States inside strings, numbers and keys.

What nearly every schema asks (any string, any number) has fixed rows; lists of words are ranges of a sorted list; all
else is an automaton of `grammars.regular`, which recognises several formulas at once, each under its outcome as a tag.

Invariant: the formulas of one automaton exclude each other, so that an accepted text has one outcome.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from grammars.json_schema.boolean import TRUE
from grammars.json_schema.counted import CountedStrings
from grammars.json_schema.fixed import Kind
from grammars.json_schema.languages import Languages, Tagged
from grammars.json_schema.names import Names
from grammars.json_schema.spelling import SpelledWords, WordRanges
from grammars.matching.hints import FORBIDDEN, Hint, Overlay, Shared
from grammars.matching.tables import NO_OUTCOME
from grammars.regular import Automaton

_QUOTE = b'"'[0]
_NO_KEY = 0

Row = list[tuple[int, int]]
"""(byte, code) pairs."""


class ScalarStates:
    """Named states of scalars, and their rows."""

    def __init__(self, languages: Languages, names: Names) -> None:
        self._languages = languages
        self._names = names
        self._automata: list[Automaton] = []
        self._quoted: list[bool] = []
        self._formats: dict[int, tuple[str, int]] = {}
        self._indices: dict[tuple[str, Tagged], int] = {}
        self._words: dict[Tagged, WordRanges] = {}
        self._string_rows: dict[tuple[int, ...], Row] = {}
        self._number_rows: dict[tuple[int, ...], Row] = {}
        self._counted = {kind: CountedStrings(names, kind) for kind in (Kind.STRING, Kind.KEY)}

    def strings(self, formulas: tuple[int, ...]) -> Row:
        """Codes of the first byte of a string; outcome i where it is in ``formulas[i]``."""
        row = self._string_rows.get(formulas)
        if row is None:
            row = self._string_rows[formulas] = self._new_strings(formulas)
        return row

    def numbers(self, formulas: tuple[int, ...]) -> Row:
        """Codes of the first byte of a number; outcome i where it is in ``formulas[i]``."""
        row = self._number_rows.get(formulas)
        if row is None:
            row = self._number_rows[formulas] = self._new_numbers(formulas)
        return row

    def _new_strings(self, formulas: tuple[int, ...]) -> Row:
        languages = self._languages
        tagged = tuple((tag, formula) for tag, formula in enumerate(formulas) if not languages.is_empty(formula))
        if not tagged:
            return []
        is_canonical = any(languages.spelling(formula)[1] for _, formula in tagged)
        tagged = tuple((tag, languages.spelling(formula)[0]) for tag, formula in tagged)
        kind = Kind.KEY if is_canonical else Kind.STRING
        if tagged[0][1] == TRUE:
            return self.fixed_row(kind, tagged[0][0])  # of formulas that exclude each other it is the only one
        lengths = [(tag, languages.lengths(formula)) for tag, formula in tagged]
        if all(found is not None for _, found in lengths):
            return self._counted[kind].start(tuple((tag, length) for tag, found in lengths for length in found or ()))
        words = self._words.get(tagged) or self._word_ranges(tagged)
        if words is not None:
            return [(_QUOTE, self._names.state(("words", words, 0, len(words), 0, _NO_KEY)))]
        return self._first(self._index("key" if is_canonical else "string", tagged))

    def _new_numbers(self, formulas: tuple[int, ...]) -> Row:
        languages = self._languages
        tagged = tuple((tag, formula) for tag, formula in enumerate(formulas) if not languages.is_empty_number(formula))
        if not tagged:
            return []
        if len(tagged) == 1:
            kind = languages.fixed_kind(tagged[0][1])
            if kind is not None:
                return self.fixed_row(kind, tagged[0][0])
        return self._first(self._index("number", tagged))

    def keys(self, words: WordRanges, others: Tagged) -> int:
        """The state after the opening quote of a key: one of ``words``, or in one of the formulas ``others``."""
        if not others:
            rest = _NO_KEY
        elif len(others) == 1 and others[0][1] == TRUE:
            rest = self._names.fixed_state(Kind.KEY, others[0][0], self._after_quote(self._names.fixed(Kind.KEY).rows))
        else:
            index = self._index("key", others)
            automaton = self._automata[index]
            rest = self._names.state(("scalar", index, int(automaton.row(automaton.start)[_QUOTE])))
        return self._names.state(("words", words, 0, len(words), 0, rest)) if len(words) else rest

    def expand(self, state: int, index: int, inner: int) -> None:
        """Build the row of a state of an automaton."""
        tables, automaton, quoted = self._names.tables, self._automata[index], self._quoted[index]
        row = np.zeros(256, dtype=np.int32)
        for members, after in automaton.moves(inner):
            closes = quoted and automaton.accepting(after)
            row[members] = (
                tables.exit(self._tag(automaton, after)) if closes else self._names.state(("scalar", index, after))
            )
        final = NO_OUTCOME if quoted or not automaton.accepting(inner) else self._tag(automaton, inner)
        tables.set_dense_row(state, row, final)

    def expand_counted(self, state: int, kind: Kind, *where: Any) -> None:
        """Build the row of a state of a string with a bounded length."""
        self._counted[kind].expand(state, *where)

    def expand_words(  # noqa: PLR0917 - the parts of a name
        self, state: int, words: WordRanges, low: int, high: int, depth: int, rest: int
    ) -> None:
        """Build the row of a range of words, laid over the state ``rest`` of other words."""
        tables = self._names.tables
        if not rest and high - low == 1:
            self._expand_last_word(state, words, low, depth)
            return
        row = self._row_of(rest).copy() if rest else np.zeros(256, dtype=np.int32)
        run = words.common(low, high, depth)
        turns = np.flatnonzero(row[np.frombuffer(run, dtype=np.uint8)] != rest)
        if len(turns):
            run = run[: int(turns[0])]  # further on, other words stand elsewhere
        if len(run) > 1:
            places = range(depth + 1, depth + len(run) + 1)
            self._names.run(state, row, run, [("words", words, low, high, place, rest) for place in places])
            return
        for byte, below, above in words.branches(low, high, depth):
            if depth + 1 == len(words.words[below]):
                outcome = words.outcome(below)
                row[byte] = 0 if outcome == FORBIDDEN else tables.exit(outcome)
                continue
            other = max(int(row[byte]), 0)
            if other or words.is_open(below, above):
                row[byte] = self._names.state(("words", words, below, above, depth + 1, other))
        tables.set_dense_row(state, row)

    def hint(self, state: int) -> Hint | None:
        """What masks may know of a state."""
        name = self._names.state_name(state)
        match name:
            case ("words", words, low, high, depth, rest):
                return Overlay(base=rest, words=words.table, low=low, high=high, depth=depth)
            case ("scalar", index, inner) if index in self._formats:
                return Shared(key=(self._formats[index], inner, self._names.characters))
            case ("counted", kind, *where):
                return self._counted[kind].hint(*where)
        return None

    def least(self, state: int) -> int:
        """At least so many bytes end the string or number that a state is in."""
        match self._names.state_name(state):
            case ("scalar", index, inner):
                return self._automata[index].distance_at_least(inner)
        return 0

    def _expand_last_word(self, state: int, words: WordRanges, low: int, depth: int) -> None:
        """Build the rows of all that is left of a single word."""
        tables = self._names.tables
        word = words.words[low]
        last = tables.exit(words.outcome(low))
        rest = word[depth + 1 :]
        names = [("words", words, low, low + 1, place, _NO_KEY) for place in range(depth + 1, len(word))]
        code = self._names.chain(rest, last, names) if rest else last
        tables.set_row(state, [(word[depth], code)])

    def _row_of(self, state: int) -> npt.NDArray[np.int32]:
        tables = self._names.tables
        if not tables.is_built(state):
            _, index, inner = self._names.state_name(state)
            self.expand(state, index, inner)
        row: npt.NDArray[np.int32] = tables.rows[state]
        return row

    def fixed_row(self, kind: Kind, outcome: int) -> Row:
        """Codes of the first byte of a text of a fixed automaton."""
        first = self._names.fixed_state(kind, outcome, 1)
        return [(byte, first + inner - 1) for byte, inner in self._names.fixed(kind).first_row]

    def _after_quote(self, rows: npt.NDArray[np.int32]) -> int:
        return int(rows[0, _QUOTE])

    def _word_ranges(self, tagged: Tagged) -> WordRanges | None:
        """The words of formulas that are finite on their face."""
        lists = [(tag, self._languages.listed(formula)) for tag, formula in tagged]
        if any(words is None for _, words in lists):
            return None
        outcomes = [(word, tag) for tag, words in lists for word in words or ()]
        spelled = SpelledWords([word for word, _ in outcomes], self._languages.characters)
        self._words[tagged] = spelled.with_outcomes((index, tag) for index, (_, tag) in enumerate(outcomes))
        return self._words[tagged]

    def _index(self, use: str, tagged: Tagged) -> int:
        index = self._indices.get((use, tagged))
        if index is None:
            build = {
                "string": self._languages.strings_automaton,
                "key": self._languages.keys_automaton,
                "number": self._languages.numbers_automaton,
            }[use]
            index = self._indices[use, tagged] = len(self._automata)
            self._automata.append(build(tagged))
            self._quoted.append(use != "number")
            name = self._languages.format_of(tagged[0][1]) if use == "string" and len(tagged) == 1 else None
            if name is not None:
                self._formats[index] = (name, tagged[0][0])
        return index

    def _first(self, index: int) -> Row:
        automaton = self._automata[index]
        return [
            (byte, self._names.state(("scalar", index, after)))
            for members, after in automaton.moves(automaton.start)
            for byte in members.tolist()
        ]

    def _tag(self, automaton: Automaton, state: int) -> int:
        (tag,) = automaton.tags(state)
        return tag
