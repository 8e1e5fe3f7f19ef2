"""Formulas over strings and over numbers, and the regular languages they stand for.

Formulas are compared and simplified as such; an automaton is built only where a text is matched or where nothing
simpler tells whether a formula is impossible. Invariant: what a formula says is exact on every text that its automaton
can produce.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

import numpy as np

from grammars.json_schema import statements, textual
from grammars.json_schema.boolean import FALSE, TRUE, Formulas
from grammars.json_schema.constants import shortest_form
from grammars.json_schema.counted import Length
from grammars.json_schema.fixed import Kind, format_automaton
from grammars.json_schema.numeric import number_expression
from grammars.json_schema.statements import Above, Integral, MultipleOf, NumberAtom, OneOf
from grammars.json_schema.textual import HasFormat, Longer, Matches, StringAtom, Words, string_expression
from grammars.regular import expressions as regular
from grammars.regular.automaton import Automaton, build
from grammars.regular.charset import ANY, CharSet
from grammars.regular.formats import format_expression
from grammars.regular.regex.compile import compile_regex

MAX_ENUMERATION_STEPS = 2000
MAX_BOUNDS = 16
"""Of formulas that tell apart more lengths the automaton is built."""

Tagged = tuple[tuple[int, int], ...]
"""(tag, formula) pairs."""


class Languages:
    """Formulas over `StringAtom`s and `NumberAtom`s."""

    def __init__(self, zeros: int = 0, characters: CharSet = ANY) -> None:
        """``zeros``: integers may be spelled with at most so many of them after a decimal point. ``characters``: those
        that a text may have raw; others are escaped, so that languages of strings are what they are.
        """
        self._zeros = zeros
        self.characters = characters
        self.strings: Formulas[StringAtom] = Formulas()
        self.numbers: Formulas[NumberAtom] = Formulas()
        self._empty_strings: dict[int, bool] = {FALSE: True, TRUE: False}
        self._empty_numbers: dict[int, bool] = {FALSE: True, TRUE: False}
        self._patterns: dict[str, regular.Expression] = {}
        self._matchers: dict[StringAtom, Automaton] = {}
        self._expressions: dict[int, regular.Expression] = {}
        self._lengths: dict[int, tuple[Length, ...] | None] = {}

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_matchers": {}, "_expressions": {}}

    def words(self, texts: Iterable[str]) -> int:
        """One of these strings."""
        words = frozenset(texts)
        return self.strings.atom(Words(words)) if words else FALSE

    def matches(self, pattern: str) -> int:
        """Some part of the string matches an ECMA-262 pattern. Raises ConstraintError where it does not parse."""
        if pattern not in self._patterns:
            self._patterns[pattern] = compile_regex(pattern, dialect="ecma", search=True)
        return self.strings.atom(Matches(pattern))

    def longer(self, count: int) -> int:
        """The string has more than ``count`` code points."""
        return TRUE if count < 0 else self.strings.atom(Longer(count))

    def format(self, name: str) -> int | None:
        """The string is of a format; None where the format is unknown."""
        return None if format_expression(name) is None else self.strings.atom(HasFormat(name))

    def integers(self) -> int:
        """Integers."""
        return self.numbers.atom(Integral(self._zeros))

    def above(self, bound: Decimal, *, inclusive: bool) -> int:
        """Numbers above ``bound``, or equal to it."""
        return self.numbers.atom(Above(shortest_form(bound), inclusive))

    def multiples(self, divisor: Decimal) -> int:
        """Integral multiples of ``divisor``."""
        return self.numbers.atom(MultipleOf(shortest_form(divisor)))

    def equals(self, value: Decimal) -> int:
        """The number equals ``value``."""
        return self.numbers.atom(OneOf(shortest_form(value), self._zeros))

    def canonical(self) -> tuple[int, int]:
        """The formulas of strings and of numbers in their one spelling."""
        return self.strings.atom(textual.Canonical()), self.numbers.atom(statements.Canonical())

    def spelling(self, formula: int) -> tuple[int, bool]:
        """A formula over strings without what it says of spelling, and whether that is the canonical one."""
        canonical = self.strings.atom(textual.Canonical())
        parts = self.strings.conjuncts(formula)
        if canonical not in parts:
            return formula, False
        return self.strings.all_of(part for part in parts if part != canonical), True

    def contains(self, formula: int, text: str) -> bool:
        """Whether a string is in a formula's language."""
        decided = self.strings.substitute(formula, lambda atom: int(self._holds(atom, text)), {})
        return decided == TRUE

    def is_empty(self, formula: int) -> bool:
        """Whether no string is in a formula's language."""
        known = self._empty_strings.get(formula)
        if known is None:
            words = self._words_within(formula)
            lengths = self.lengths(formula)
            if lengths is not None:
                known = not lengths
            elif self.format_of(formula) is not None:
                known = False
            elif words is not None:
                known = not any(self.contains(formula, word) for word in words)
            else:
                known = build(self.string_expression(formula)).is_empty
            self._empty_strings[formula] = known
        return known

    def is_endless(self, formula: int) -> bool:
        """Whether every string can go on to one of the formula's beyond any finite number of them, where that is
        plain.
        """
        for part in self.strings.conjuncts(formula):
            atom, positive = self.strings.literal(part) or (None, True)
            if isinstance(atom, Words) and not positive:
                continue
            if not self.is_empty(self.strings.negate(part)):
                return False
        return True

    def enumerated(self, formula: int, limit: int) -> frozenset[str] | None:
        """All strings of a formula, where they are at most ``limit`` and short; None where they are more."""
        words = self._words_within(formula)
        if words is not None:
            found = frozenset(word for word in words if self.contains(formula, word))
            return found if len(found) <= limit else None
        return _enumerated(build(self.string_expression(formula)), limit)

    def listed(self, formula: int) -> list[str] | None:
        """All strings of a formula that is finite on its face; None for any other."""
        words = self._words_within(formula)
        return None if words is None else sorted(word for word in words if self.contains(formula, word))

    def lengths(self, formula: int) -> tuple[Length, ...] | None:
        """The lengths that a formula admits which speaks of lengths alone; None for any other."""
        if formula not in self._lengths:
            self._lengths[formula] = self._told_lengths(formula)
        return self._lengths[formula]

    def _told_lengths(self, formula: int) -> tuple[Length, ...] | None:
        counts = []
        for atom, _ in self.strings.atoms(formula) if formula > TRUE else ():
            if not isinstance(atom, Longer):
                return None
            counts.append(atom.count)
        begins = sorted({0, *(count + 1 for count in counts)})
        if len(begins) > MAX_BOUNDS:
            return None
        found: list[Length] = []
        for least, following in zip(begins, [*begins[1:], None], strict=True):
            if not self._admits(formula, least):
                continue
            begin = found.pop().least if found and found[-1].most == least - 1 else least
            found.append(Length(least=begin, most=None if following is None else following - 1))
        return tuple(found)

    def _admits(self, formula: int, count: int) -> bool:
        """Whether a formula that speaks of lengths alone holds of strings with so many code points."""

        def image(atom: StringAtom) -> int:
            assert isinstance(atom, Longer)
            return int(count > atom.count)

        return self.strings.substitute(formula, image, {}) == TRUE

    def fixed_kind(self, formula: int) -> Kind | None:
        """The fixed automaton of a formula over numbers, where there is one."""
        if formula == TRUE:
            return Kind.NUMBER
        atoms = set()
        for part in self.numbers.conjuncts(formula):
            atom, positive = self.numbers.literal(part) or (None, False)
            if not positive or not isinstance(atom, Integral | statements.Canonical):
                return None
            atoms.add(atom)
        if statements.Canonical() in atoms:
            return Kind.CANONICAL_NUMBER if len(atoms) == 1 else Kind.CANONICAL_INTEGER
        return Kind.INTEGER if atoms == {Integral(1)} else Kind.PLAIN_INTEGER

    def is_empty_number(self, formula: int) -> bool:
        """Whether no number is in a formula's language."""
        known = False if self.fixed_kind(formula) is not None else self._empty_numbers.get(formula)
        if known is None:
            known = build(number_expression(self.numbers, formula)).is_empty
            self._empty_numbers[formula] = known
        return known

    def string_expression(self, formula: int) -> regular.Expression:
        """The strings of a formula, as texts of code points."""
        known = self._expressions.get(formula)
        if known is None:
            words = self._words_within(formula)
            if words is not None:
                known = regular.words(word for word in words if self.contains(formula, word))
            else:
                known = string_expression(self.strings, formula, self._patterns)
            self._expressions[formula] = known
        return known

    def format_of(self, formula: int) -> str | None:
        """The format that is all that a formula asks; None for any other."""
        literal = self.strings.literal(formula)
        return literal[0].name if literal is not None and literal[1] and isinstance(literal[0], HasFormat) else None

    def count_numbers(self, formula: int, limit: int) -> int | None:
        """How many numbers a formula has, where they are at most ``limit``; None for more."""
        canonical = self.numbers.all_of((formula, self.canonical()[1]))
        if canonical == FALSE:
            return 0
        words = _enumerated(build(number_expression(self.numbers, canonical)), limit)
        return None if words is None else len(words)

    def strings_automaton(self, tagged: Tagged) -> Automaton:
        """JSON strings in every spelling; the tag tells the formula."""
        if len(tagged) == 1 and (name := self.format_of(tagged[0][1])) is not None:
            return format_automaton(name, tagged[0][0], self.characters)
        parts = [regular.tagged(tag, regular.json_string(self.string_expression(formula))) for tag, formula in tagged]
        return build(regular.union(*parts), characters=self.characters)

    def keys_automaton(self, tagged: Tagged) -> Automaton:
        """JSON strings in their one canonical spelling; the tag tells the formula."""
        parts = [
            regular.tagged(tag, regular.json_string(self.string_expression(formula), escapes="canonical"))
            for tag, formula in tagged
        ]
        return build(regular.union(*parts), characters=self.characters)

    def numbers_automaton(self, tagged: Tagged) -> Automaton:
        """JSON numbers; the tag tells the formula."""
        parts = [regular.tagged(tag, number_expression(self.numbers, formula)) for tag, formula in tagged]
        return build(regular.union(*parts))

    def _words_within(self, formula: int) -> frozenset[str] | None:
        """A finite set that holds the formula's whole language, where that shows on its face."""
        return self.strings.fold(formula, _word_set, _join_words)

    def _holds(self, atom: StringAtom, text: str) -> bool:
        if isinstance(atom, Words):
            return text in atom.texts
        if isinstance(atom, textual.Canonical):
            return True
        if isinstance(atom, Longer):
            return len(text) > atom.count
        automaton = self._matchers.get(atom)
        if automaton is None:
            automaton = self._matchers[atom] = build(
                string_expression(self.strings, self.strings.atom(atom), self._patterns)
            )
        return automaton.matches(text.encode())


def _word_set(atom: StringAtom, is_positive: bool) -> frozenset[str] | None:
    return atom.texts if is_positive and isinstance(atom, Words) else None


def _join_words(is_conjunction: bool, parts: list[frozenset[str] | None]) -> frozenset[str] | None:
    finite = [part for part in parts if part is not None]
    if is_conjunction:
        return min(finite, key=len) if finite else None
    return frozenset().union(*finite) if len(finite) == len(parts) else None


def _enumerated(automaton: Automaton, limit: int) -> frozenset[str] | None:
    """The words of an automaton by depth-first search; None where there are more than ``limit``, or too many states."""
    words: list[str] = []
    pending = [(automaton.start, b"")]
    for _ in range(MAX_ENUMERATION_STEPS):
        if not pending:
            return frozenset(words)
        state, text = pending.pop()
        if automaton.accepting(state):
            words.append(text.decode())
        row = automaton.row(state)
        pending += [(int(row[byte]), text + bytes((byte,))) for byte in np.flatnonzero(row).tolist()]
        if len(words) > limit or len(pending) > limit:
            return None
    return None
