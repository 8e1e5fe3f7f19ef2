"""Plain decimals of which a formula is true, decided digit by digit.

What a formula may ask of a number depends on its sign, its remainder by a common multiple of all divisors, and how it
compares with a few bounds. A state holds just that: the digits read as an integer while it is within reach of a bound,
afterwards its remainder alone. So any combination of divisors and bounds is one automaton, without complements or
products.

    state    (minus, places, digits, value or BIG, remainder, beyond, last zero)

Numbers are scaled by ten to the power of the places that bounds and divisors have; a digit further on is only noted.
Invariant: every state that `arcs` leads to can be completed.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from decimal import Decimal
from fractions import Fraction
from math import lcm
from typing import NamedTuple

from decoding.errors import ConstraintError
from grammars.json_schema.boolean import TRUE, Formulas
from grammars.json_schema.statements import Above, Canonical, Integral, MultipleOf, NumberAtom, OneOf
from grammars.regular.charset import CharSet

MAX_DIGITS = 15
"""Digits of a plain decimal: different ones are different doubles."""
MAX_STATES = 100_000
"""Most states that are looked at for a way to the end."""
_BIG = -1
_NO_POINT = -1
_POINT, _MINUS = CharSet.of("."), CharSet.of("-")
_DIGITS = tuple(CharSet.of(digit) for digit in "0123456789")


class _State(NamedTuple):
    """What matters of the text so far.

    Attributes:
        minus: it begins with a minus sign.
        places: digits after the point, _NO_POINT before it.
        digits: digits in all.
        value: the digits as an integer, _BIG past every bound.
        remainder: the same by the common multiple.
        beyond: some digit past the places that matter is not zero.
        ends_in_zero: the last digit is one.
    """

    minus: bool
    places: int
    digits: int
    value: int
    remainder: int
    beyond: bool
    ends_in_zero: bool


class DecimalMachine:
    """The `grammars.regular.machine.Machine` of a formula."""

    def __init__(self, numbers: Formulas[NumberAtom], formula: int) -> None:
        self._numbers = numbers
        self._formula = formula
        atoms = [atom for atom, _ in numbers.atoms(formula)]
        spoken = [value for atom in atoms for value in _values(atom)]
        self._places = max((-int(value.as_tuple().exponent) for value in spoken), default=0)
        self._places = max(self._places, 0)
        unit = 10**self._places
        bounds = [atom.bound for atom in atoms if isinstance(atom, Above)]
        bounds += [atom.value for atom in atoms if isinstance(atom, OneOf)]
        self._reach = max((int(abs(Fraction(bound)) * unit) for bound in bounds), default=0) + 1
        self._modulus = lcm(unit, *(self._scaled(atom.divisor) for atom in atoms if isinstance(atom, MultipleOf)))
        self._live: dict[_State, bool] = {}
        self._far_out: dict[bool, bool] = {}
        self._verdicts: dict[tuple[bool, ...], bool] = {}
        self._atoms = atoms
        self._is_canonical = Canonical() in atoms

    def start(self) -> Hashable | None:
        """The state before the text."""
        start = _State(False, _NO_POINT, 0, 0, 0, False, False)  # noqa: FBT003 - in the order of the fields
        return start if self._is_live(start) else None

    def classes(self) -> Iterable[CharSet]:
        """One set per digit, the point and the sign."""
        return (*_DIGITS, _POINT, _MINUS)

    def arcs(self, state: Hashable) -> Iterable[tuple[CharSet, Hashable]]:
        """The live states after one more character."""
        assert isinstance(state, _State)
        return [(chars, after) for chars, after in self._arcs(state) if self._is_live(after)]

    def accepts(self, state: Hashable) -> bool:
        """Whether the text so far is a number of which the formula is true."""
        assert isinstance(state, _State)
        if not state.digits or state.places == 0 or (state.places > 0 and self._writes_no_zeros(state)):
            return False
        return self._verdict(state)

    def _verdict(self, state: _State) -> bool:
        """Whether the formula is true of the number, however it is written."""
        truths = tuple(self._truth(atom, state) for atom in self._atoms)
        verdict = self._verdicts.get(truths)
        if verdict is None:
            by_atom = dict(zip(self._atoms, truths, strict=True))
            verdict = self._numbers.substitute(self._formula, lambda atom: int(by_atom[atom]), {}) == TRUE
            self._verdicts[truths] = verdict
        return verdict

    def shortest(self, state: Hashable) -> int:
        """A lower bound on the characters to the end."""
        return 0 if self.accepts(state) else 1

    def identity(self) -> str:
        """The formula, written out."""
        return "decimals:" + self._numbers.fold(
            self._formula, lambda atom, positive: f"{'' if positive else '!'}{atom!r}", _written
        )

    def _arcs(self, state: _State) -> Iterable[tuple[CharSet, _State]]:
        if not state.digits and not state.minus:
            yield _MINUS, state._replace(minus=True)
        if state.digits and state.places == _NO_POINT and state.digits < MAX_DIGITS:
            yield _POINT, state._replace(places=0)
        is_whole_zero = state.digits == 1 and state.places == _NO_POINT and state.value == 0
        if state.digits < MAX_DIGITS and not is_whole_zero:
            for digit, chars in enumerate(_DIGITS):
                yield chars, self._with_digit(state, digit)

    def _with_digit(self, state: _State, digit: int) -> _State:
        after = state._replace(digits=state.digits + 1, ends_in_zero=self._is_canonical and digit == 0)
        if state.places != _NO_POINT:
            after = after._replace(places=state.places + 1)
        if after.places > self._places:
            return after._replace(places=self._places + 1, beyond=state.beyond or digit > 0)
        value = _BIG
        if state.value != _BIG:
            value = 10 * state.value + digit
            still_to_come = self._places - max(after.places, 0)
            if value * 10**still_to_come > self._reach:
                value = _BIG
        return after._replace(value=value, remainder=(10 * state.remainder + digit) % self._modulus)

    def _is_live(self, start: _State) -> bool:
        """Depth first; digits only grow in number, so that no state comes again below itself."""
        live = self._live
        pending: list[tuple[_State, Iterator[tuple[CharSet, _State]]]] = []
        state: _State | None = start
        while state is not None:
            known = live.get(state)
            if known is None:
                known = self._is_plainly_live(state)
            if known is None:
                pending.append((state, iter(self._arcs(state))))
                if len(live) > MAX_STATES:
                    raise ConstraintError(
                        "number", f"no number was found among {MAX_STATES} beginnings; simplify bounds and divisors"
                    )
            else:
                live[state] = known
                if known:
                    live.update((above, True) for above, _ in pending)
                    break
            state = self._next(pending)
        return live[start]

    def _next(self, pending: list[tuple[_State, Iterator[tuple[CharSet, _State]]]]) -> _State | None:
        """The next state to look at; states without a live one below are dead."""
        while pending:
            above, below = pending[-1]
            following = next(below, None)
            if following is not None:
                return following[1]
            self._live[above] = False
            pending.pop()
        return None

    def _is_plainly_live(self, state: _State) -> bool | None:
        """Whether a state is live, where that takes no search."""
        if self.accepts(state):
            return True
        if self._is_free(state):
            return self._is_possible_far_out(minus=state.minus)
        if state.places > self._places:
            return state.digits < MAX_DIGITS and self.accepts(state._replace(beyond=True, ends_in_zero=False))
        return None

    def _is_free(self, state: _State) -> bool:
        """Past every bound, and with so many digits to come that any remainder can be reached."""
        to_come = MAX_DIGITS - state.digits
        has_room = to_come >= max(len(str(self._modulus)), self._places)
        return state.value == _BIG and state.places == _NO_POINT and has_room

    def _is_possible_far_out(self, *, minus: bool) -> bool:
        """Whether the formula is true of some number past every bound."""
        known = self._far_out.get(minus)
        if known is None:
            if self._modulus > MAX_STATES:
                raise ConstraintError(
                    "number", f"the divisors repeat after {self._modulus} only; use fewer or rounder ones"
                )
            state = _State(minus, self._places, MAX_DIGITS, _BIG, 0, True, False)  # noqa: FBT003 - in the order of the fields
            whole = (state._replace(remainder=remainder, beyond=False) for remainder in range(self._modulus))
            known = self._far_out[minus] = any(map(self._verdict, (state, *whole)))
        return known

    def _truth(self, atom: NumberAtom, state: _State) -> bool:
        match atom:
            case Integral():
                return self._is_multiple(state, 10**self._places)
            case MultipleOf(divisor):
                return self._is_multiple(state, self._scaled(divisor))
            case Above(bound, inclusive):
                return self._is_above(state, self._scaled(bound), inclusive=inclusive)
            case OneOf(value, _):
                wanted = self._scaled(value)
                return not state.beyond and state.value != _BIG and self._signed(state) == wanted
            case Canonical():
                is_minus_zero = state.minus and state.value == 0 and not state.beyond
                return not is_minus_zero and not (state.places > 0 and state.ends_in_zero)
        raise AssertionError(atom)

    def _writes_no_zeros(self, state: _State) -> bool:
        """Whether this is an integer with a fraction, which some drafts call none: neither is written then."""
        strict = any(isinstance(atom, Integral) and not atom.zeros for atom in self._atoms)
        return strict and self._is_multiple(state, 10**self._places)

    def _is_multiple(self, state: _State, divisor: int) -> bool:
        to_come = 10 ** (self._places - min(max(state.places, 0), self._places))
        return not state.beyond and state.remainder * to_come % divisor == 0

    def _is_above(self, state: _State, bound: int, *, inclusive: bool) -> bool:
        if state.value == _BIG:
            return not state.minus
        value = self._signed(state)
        if value == bound:
            return not state.minus if state.beyond else inclusive
        return value > bound

    def _signed(self, state: _State) -> int:
        """The value in units, without the digits beyond."""
        value: int = state.value * 10 ** (self._places - min(max(state.places, 0), self._places))
        return -value if state.minus else value

    def _scaled(self, value: Decimal) -> int:
        return int(Fraction(value) * 10**self._places)


def _values(atom: NumberAtom) -> list[Decimal]:
    match atom:
        case Above(bound, _):
            return [bound]
        case MultipleOf(divisor):
            return [divisor]
        case OneOf(value, _):
            return [value]
    return []


def _written(is_conjunction: bool, parts: list[str]) -> str:
    return f"({(' & ' if is_conjunction else ' | ').join(parts)})"
