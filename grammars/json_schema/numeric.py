"""The expression of a formula over numbers.

Positive statements and bounds become one bounded number. Where something is denied ("no multiple of 5"), or
alternatives are to hold together with something else, only *plain* decimals are written, those without an exponent.
Invariant: every number that a formula spells satisfies it.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from math import gcd, lcm

from decoding.errors import UnsupportedConstraintError
from grammars.json_schema.arithmetic import DecimalMachine
from grammars.json_schema.boolean import FALSE, TRUE, Formulas
from grammars.json_schema.statements import Above, Canonical, Integral, MultipleOf, NumberAtom, OneOf
from grammars.regular import expressions as regular
from grammars.regular.numbers import Bounds, integer, number, short_decimal

MAX_CONSTANT_DIGITS = 400


Literal = tuple[NumberAtom, bool]
"""An atom, and whether it is asserted or denied."""


def number_expression(numbers: Formulas[NumberAtom], formula: int) -> regular.Expression:
    """The language of a formula."""
    if formula == TRUE:
        return number()
    if formula == FALSE:
        return regular.EMPTY
    constants = _constants(numbers, formula, {})
    if constants is not None:
        is_canonical = numbers.atom(Canonical()) in numbers.conjuncts(formula)
        true = constants.values()
        return regular.union(*(_spelled(replace(atom, zeros=0) if is_canonical else atom) for atom in true))
    is_conjunction, parts = numbers.parts(formula)
    if not is_conjunction:
        return regular.union(*(number_expression(numbers, part) for part in parts))
    literals = [literal for part in parts if (literal := numbers.literal(part)) is not None]
    is_denied = any(not asserted and not isinstance(atom, Above) for atom, asserted in literals)
    if len(literals) == len(parts) and not is_denied:
        return _conjunction(literals)
    return regular.from_machine(DecimalMachine(numbers, formula))


def holds(atom: NumberAtom, value: Decimal) -> bool:
    """Whether an atom is true of a value."""
    match atom:
        case Integral():
            return value == value.to_integral_value()
        case Above(bound, inclusive):
            return value > bound or (inclusive and value == bound)
        case MultipleOf(divisor):
            return (Fraction(value) / Fraction(divisor)).denominator == 1
        case OneOf(other, _):
            return value == other
        case Canonical():
            return True
    raise AssertionError(atom)


Constants = dict[Decimal, OneOf]
"""Statements that a number equals a constant, by that constant."""


def _constants(numbers: Formulas[NumberAtom], formula: int, memo: dict[int, Constants | None]) -> Constants | None:
    """The numbers of which a formula is true, where it shows on its face that they are finitely many."""
    if formula not in memo:
        literal = numbers.literal(formula)
        if literal is not None:
            atom, asserted = literal
            memo[formula] = {atom.value: atom} if asserted and isinstance(atom, OneOf) else None
        else:
            is_conjunction, parts = numbers.parts(formula)
            found = [(part, _constants(numbers, part, memo)) for part in parts]
            memo[formula] = _common(numbers, found) if is_conjunction else _together(found)
    return memo[formula]


def _together(found: list[tuple[int, Constants | None]]) -> Constants | None:
    """The constants of a disjunction."""
    together: Constants = {}
    for _, constants in found:
        if constants is None:
            return None
        together |= constants
    return together


def _common(numbers: Formulas[NumberAtom], found: list[tuple[int, Constants | None]]) -> Constants | None:
    """The constants of a conjunction."""
    finite = [constants for _, constants in found if constants is not None]
    if not finite:
        return None
    others = [part for part, constants in found if constants is None]
    return {
        value: atom
        for value, atom in min(finite, key=len).items()
        if all(value in constants for constants in finite) and all(_is_true(numbers, part, value) for part in others)
    }


def _is_true(numbers: Formulas[NumberAtom], formula: int, value: Decimal) -> bool:
    return numbers.substitute(formula, lambda atom: int(holds(atom, value)), {}) == TRUE


def _conjunction(literals: list[Literal]) -> regular.Expression:
    spoken: list[Literal] = [(atom, asserted) for atom, asserted in literals if not isinstance(atom, Canonical)]
    if len(spoken) < len(literals):
        assert all(asserted for atom, asserted in literals if isinstance(atom, Canonical))
        return regular.intersection(_conjunction(spoken), CANONICAL) if spoken else CANONICAL
    bounds = _bounds(literals)
    zeros = [atom.zeros for atom, asserted in literals if asserted and isinstance(atom, Integral)]
    if zeros:
        return integer(bounds, zeros=min(zeros))
    if bounds.multiple_of is None:
        return number(bounds)
    return regular.intersection(number(bounds), PLAIN)  # else a double nearby may be no multiple


def _bounds(literals: list[Literal]) -> Bounds:
    lower, upper, strictly_above, strictly_below = [], [], [], []
    step: Fraction | None = None
    for atom, asserted in literals:
        match atom, asserted:
            case Above(bound, True), True:
                lower.append(bound)
            case Above(bound, False), True:
                strictly_above.append(bound)
            case Above(bound, True), False:
                strictly_below.append(bound)
            case Above(bound, False), False:
                upper.append(bound)
            case MultipleOf(divisor), True:
                step = Fraction(divisor) if step is None else _common_multiple(step, Fraction(divisor))
    return Bounds(
        minimum=max(lower, default=None),
        maximum=min(upper, default=None),
        exclusive_minimum=max(strictly_above, default=None),
        exclusive_maximum=min(strictly_below, default=None),
        multiple_of=step,
    )


def _spelled(atom: OneOf) -> regular.Expression:
    value = atom.value
    if abs(value.adjusted()) > MAX_CONSTANT_DIGITS:
        raise UnsupportedConstraintError("number", f"the constant {value} has more than {MAX_CONSTANT_DIGITS} digits")
    plain = f"{value:f}"
    return regular.words([plain] if "." in plain or not atom.zeros else [plain, f"{plain}.0"])


def _common_multiple(left: Fraction, right: Fraction) -> Fraction:
    return Fraction(lcm(left.numerator, right.numerator), gcd(left.denominator, right.denominator))


PLAIN = short_decimal()
"""Decimals without an exponent, so short that different values are read as different doubles."""
_ENDS_IN_ZERO = regular.concat(regular.ANY_TEXT, regular.literal("."), regular.ANY_TEXT, regular.literal("0"))
CANONICAL = regular.difference(PLAIN, regular.union(_ENDS_IN_ZERO, regular.literal("-0")))
"""Those of which no two are equal numbers."""
