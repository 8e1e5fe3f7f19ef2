"""A machine for unsigned decimals between two bounds that are multiples of a step: digit automata by exact arithmetic.

All values are integers on the grid of 10^-places. After some digits the values that can still be reached are, for n
more digits before the point, those of the interval [v 10^n, (v+1) 10^n) on that grid. Only while a bound cuts such an
interval does a state remember v; otherwise the remainder modulo the step and the number of digits still needed and
still allowed say it all, so that there are few states whatever the bounds. Invariant: a digit is offered only where a
multiple of the step within the bounds can still be reached, which is decided by arithmetic, never by search.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from grammars.regular.charset import CharSet

_DIGITS: Final = tuple(CharSet.of(str(digit)) for digit in range(10))
_POINT: Final = CharSet.of(".")
_FREE: Final = -1


@dataclass(frozen=True, slots=True)
class _Whole:
    """Before the point: more digits needed and allowed, the value modulo the step, the value while a bound cuts it."""

    needed: int
    allowed: int
    remainder: int
    value: int


@dataclass(frozen=True, slots=True)
class _Part:
    """After the point: places left, the value so far modulo the step, the value while a bound cuts it."""

    left: int
    remainder: int
    value: int
    at_point: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Magnitude:
    """``0`` or digits without a leading zero, then perhaps a point and 1 to ``places`` digits.

    ``low``, ``high`` and ``step`` count units of 10^-places; 0 <= low <= high, step >= 1.
    """

    low: int
    high: int
    step: int
    places: int

    _unit: int = field(init=False, repr=False)
    _low_digits: int = field(init=False, repr=False)
    """Digits before the point of the lower bound."""
    _digits: int = field(init=False, repr=False)
    """Digits before the point of the upper bound."""

    def __post_init__(self) -> None:
        unit = 10**self.places
        object.__setattr__(self, "_unit", unit)
        object.__setattr__(self, "_low_digits", len(str(self.low // unit)))
        object.__setattr__(self, "_digits", len(str(self.high // unit)))

    def start(self) -> Hashable | None:
        """The start, unless no multiple of the step is within the bounds."""
        return "start" if self._first_multiple(self.low) <= self.high else None

    def classes(self) -> Iterable[CharSet]:
        """The digits and the point."""
        return (*_DIGITS, _POINT)

    def arcs(self, state: Hashable) -> Iterable[tuple[CharSet, Hashable]]:
        """Digits and the point, as far as they can lead to a value."""
        for digit in range(10):
            target = self._after_digit(state, digit)
            if target is not None and self._reaches(target):
                yield _DIGITS[digit], target
        if isinstance(state, _Whole) and state.needed == 0 and self.places:
            point = self._part(state.value if state.value != _FREE else state.remainder, 0, state.value != _FREE)
            if self._reaches(point):
                yield _POINT, replace(point, at_point=True)

    def accepts(self, state: Hashable) -> bool:
        """The digits so far are a value within the bounds and a multiple of the step."""
        if isinstance(state, _Whole):
            return state.needed == 0 and self._fits(state.value, state.remainder, self._unit)
        if isinstance(state, _Part):
            return not state.at_point and self._fits(state.value, state.remainder, 10**state.left)
        return False

    def shortest(self, state: Hashable) -> int:
        """The digits still needed before the point, at least one where the text so far is no value."""
        needed = state.needed if isinstance(state, _Whole) else 0
        return needed or (0 if self.accepts(state) else 1)

    def identity(self) -> str:
        """The four numbers."""
        return f"magnitude:{self.low},{self.high},{self.step},{self.places}"

    def _after_digit(self, state: Hashable, digit: int) -> _Whole | _Part | None:
        if state == "start":
            return self._whole(digit, 1) if digit else self._zero()
        if isinstance(state, _Whole):
            if not state.allowed:
                return None
            if state.value == _FREE:
                remainder = (state.remainder * 10 + digit) % self.step
                return _Whole(max(state.needed - 1, 0), state.allowed - 1, remainder, _FREE)
            return self._whole(state.value * 10 + digit, len(str(state.value)) + 1)
        assert isinstance(state, _Part)
        if not state.left:
            return None
        exact = state.value != _FREE
        value = (state.value if exact else state.remainder) * 10 + digit
        return self._part(value, self.places - state.left + 1, exact)

    def _zero(self) -> _Whole:
        return _Whole(0, 0, 0, 0)

    def _whole(self, value: int, digits: int) -> _Whole | None:
        """The state after the digits of ``value``; the bounds are compared at the length at which they could cut."""
        allowed = self._digits - digits
        if allowed < 0:
            return None
        needed = max(self._low_digits - digits, 0)
        low_first, low_last = self._interval(value, needed)
        high_first, high_last = self._interval(value, allowed)
        if low_first < self.low <= low_last or high_first <= self.high < high_last:
            return _Whole(0 if value * self._unit >= self.low else needed, allowed, 0, value)
        needed += low_last < self.low
        allowed -= high_first > self.high
        return _Whole(needed, allowed, value % self.step, _FREE) if needed <= allowed else None

    def _part(self, value: int, places: int, exact: bool) -> _Part:
        left = self.places - places
        if exact:
            first, last = value * 10**left, (value + 1) * 10**left - 1
            exact = not (self.low <= first and last <= self.high)
        return _Part(left, 0 if exact else value % self.step, value if exact else _FREE)

    def _interval(self, value: int, more: int) -> tuple[int, int]:
        scale = 10**more * self._unit
        return value * scale, (value + 1) * scale - 1

    def _reaches(self, state: _Whole | _Part) -> bool:
        """A multiple of the step within the bounds can be reached."""
        if isinstance(state, _Part):
            return self._meets(state.value, state.remainder, 10**state.left)
        if state.value == _FREE and self.step == 1:
            return True
        return any(self._meets(state.value, state.remainder, scale) for scale in self._scales(state))

    def _scales(self, state: _Whole) -> Iterator[int]:
        for more in range(state.needed if state.value == _FREE else 0, state.allowed + 1):
            yield 10**more * self._unit

    def _meets(self, value: int, remainder: int, scale: int) -> bool:
        if value == _FREE:
            return -remainder * scale % self.step < scale
        first, last = max(value * scale, self.low), min((value + 1) * scale - 1, self.high)
        return self._first_multiple(first) <= last

    def _fits(self, value: int, remainder: int, scale: int) -> bool:
        if value == _FREE:
            return remainder * scale % self.step == 0
        return self.low <= value * scale <= self.high and value * scale % self.step == 0

    def _first_multiple(self, value: int) -> int:
        return -(-value // self.step) * self.step
