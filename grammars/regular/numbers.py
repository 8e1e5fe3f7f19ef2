"""JSON numbers within bounds, as expressions (RFC 8259, section 6; JSON Schema 2020-12 validation, section 6.2).

Every language is finite: digits are bounded, so that a model cannot write digits for ever. Invariant: each word, read
as an exact decimal, keeps every bound asked for; exponents appear only where no bound and no divisor can be missed
through them.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor, gcd, inf, lcm, nextafter
from typing import Final

from decoding.errors import ConstraintError, UnsupportedConstraintError
from grammars.regular.expressions import (
    EMPTY,
    Expression,
    chars,
    concat,
    from_machine,
    intersection,
    literal,
    optional,
    repeat,
    union,
)
from grammars.regular.magnitude import Magnitude

Real = int | float | Decimal | Fraction

SAFE_INTEGER: Final = 2**53 - 1
"""The largest integer up to which every JSON parser reads integers exactly (RFC 8259, section 6)."""
WHOLE_DIGITS: Final = 20
"""Digits before the point of a number without bounds."""
FRACTION_DIGITS: Final = 20
"""Digits after the point; the shortest text of a double without an exponent has at most so many."""
EXPONENT: Final = 280
"""Largest exponent, so that no number overflows a double."""
DOUBLE_DIGITS: Final = 15
"""Decimal digits that a double always keeps (DBL_DIG)."""
_MAX_PLACES: Final = 60
_LARGEST: Final = 10**300
"""Beyond this no double is looked for."""
_DIGIT: Final = chars("0123456789")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a number is held to. None: no bound. Floats stand for their shortest decimal text."""

    minimum: Real | None = None
    maximum: Real | None = None
    exclusive_minimum: Real | None = None
    exclusive_maximum: Real | None = None
    multiple_of: Real | None = None

    def __post_init__(self) -> None:
        """Raises ConstraintError where `multiple_of` is not positive."""
        if self.multiple_of is not None and self.multiple_of <= 0:
            raise ConstraintError("multipleOf", f"{self.multiple_of} is not positive")

    @property
    def has_limits(self) -> bool:
        """There is a lower or an upper bound."""
        limits = (self.minimum, self.maximum, self.exclusive_minimum, self.exclusive_maximum)
        return any(limit is not None for limit in limits)

    def on_grid(self, places: int) -> tuple[int | None, int | None]:
        """Lower and upper bound, both included, in units of 10^-places.

        Exclusive bounds hold for the doubles that decimals are read as, too: 99.999999999999999 is read as 100.
        """
        unit = 10**places
        low = [ceil(exact(v) * unit) for v in [self.minimum] if v is not None]
        low += [floor(_read_above(exact(v)) * unit) + 1 for v in [self.exclusive_minimum] if v is not None]
        high = [floor(exact(v) * unit) for v in [self.maximum] if v is not None]
        high += [ceil(_read_below(exact(v)) * unit) - 1 for v in [self.exclusive_maximum] if v is not None]
        return max(low, default=None), min(high, default=None)


UNBOUNDED: Final = Bounds()


def integer(bounds: Bounds = UNBOUNDED, *, zeros: int = 0, magnitude: int = SAFE_INTEGER) -> Expression:
    """Integers without leading zeros, ``-0`` included where 0 is.

    ``zeros`` admits a point and so many zeros at most after it (JSON Schema counts 1.0 as an integer). Where there is
    no lower (upper) bound, ``-magnitude`` (``magnitude``) is one, moved out as far as the other bound needs it.

    Raises:
        UnsupportedConstraintError: `multiple_of` has too many decimal places.
    """
    step = Fraction(1) if bounds.multiple_of is None else _lcm(exact(bounds.multiple_of), Fraction(1))
    low, high = bounds.on_grid(0)
    reach = max(magnitude, 10 * abs(low or 0), 10 * abs(high or 0), step.numerator)
    low = _default(low, -reach if high is not None and high < -magnitude else -magnitude)
    high = _default(high, reach if low > magnitude else magnitude)
    unit = 10**zeros
    return _signed(low * unit, high * unit, int(step) * unit, zeros)


def number(
    bounds: Bounds = UNBOUNDED, *, whole_digits: int = WHOLE_DIGITS, fraction_digits: int = FRACTION_DIGITS
) -> Expression:
    """Decimals with at most so many digits on either side of the point.

    Without bounds and divisor any exponent up to `EXPONENT` may follow. With bounds, numbers in scientific notation
    (one digit from 1 to 9 before the point) are there as far as all numbers with their exponent keep the bounds; with a
    divisor there are none.

    With a divisor and without bounds every multiple of so many digits is there, so that the complement within decimals
    of so many digits is exact.

    Raises:
        UnsupportedConstraintError: `multiple_of` or a bound has too many decimal places.
    """
    if not bounds.has_limits and bounds.multiple_of is None:
        return _unbounded(whole_digits, fraction_digits)
    step = Fraction(0) if bounds.multiple_of is None else exact(bounds.multiple_of)
    places = max(fraction_digits, _places(step), *map(_places, _limits(bounds)))
    unit = 10**places
    low, high = bounds.on_grid(places)
    reach = max(10**whole_digits, *(10 * abs(v) // unit + 1 for v in (low or 0, high or 0)), ceil(step)) * unit - 1
    step_on_grid = int(step * unit) if step else 1
    plain = _signed(_default(low, -reach), _default(high, reach), step_on_grid, places)
    return plain if step else union(plain, _scientific(bounds, fraction_digits))


def short_decimal(digits: int = DOUBLE_DIGITS) -> Expression:
    """Decimals without an exponent, of at most so many digits in all.

    With no more than 15, different values are read as different doubles, so that what is no integer is not read as one.
    """
    counted = repeat(concat(_DIGIT, optional(literal("."))), 1, digits)
    shape = concat(_whole(digits), optional(concat(literal("."), repeat(_DIGIT, 1, digits - 1))))
    return concat(optional(literal("-")), intersection(shape, counted))


def exact(value: Real) -> Fraction:
    """The value of a number's decimal text; that of a float is its shortest one."""
    return Fraction(repr(value)) if isinstance(value, float) else Fraction(value)


def _limits(bounds: Bounds) -> list[Fraction]:
    limits = (bounds.minimum, bounds.maximum, bounds.exclusive_minimum, bounds.exclusive_maximum)
    return [exact(limit) for limit in limits if limit is not None]


def _default(bound: int | None, other: int) -> int:
    return other if bound is None else bound


def _lcm(left: Fraction, right: Fraction) -> Fraction:
    return Fraction(lcm(left.numerator, right.numerator), gcd(left.denominator, right.denominator))


def _places(value: Fraction) -> int:
    """Decimal places of a value."""
    places = 0
    while (value * 10**places).denominator != 1:
        places += 1
        if places > _MAX_PLACES:
            raise UnsupportedConstraintError("number", f"{value} has more than {_MAX_PLACES} decimal places")
    return places


def _signed(low: int, high: int, step: int, places: int) -> Expression:
    """Multiples of the step from low to high, in units of 10^-places."""
    parts = []
    if high >= 0 and low <= high:
        parts.append(from_machine(Magnitude(low=max(low, 0), high=high, step=step, places=places)))
    if low <= 0 and low <= high:
        negative = Magnitude(low=max(-high, 0), high=-low, step=step, places=places)
        parts.append(concat(literal("-"), from_machine(negative)))
    return union(*parts)


def _unbounded(whole_digits: int, fraction_digits: int) -> Expression:
    fraction = optional(concat(literal("."), repeat(_DIGIT, 1, fraction_digits)))
    exponent = optional(concat(chars("eE"), _exponent(-EXPONENT, EXPONENT)))
    return concat(optional(literal("-")), _whole(whole_digits), fraction, exponent)


def _whole(digits: int) -> Expression:
    return union(literal("0"), concat(chars("123456789"), repeat(_DIGIT, 0, digits - 1)))


def _exponent(low: int, high: int) -> Expression:
    """Exponents from low to high, a plus sign and one zero in front admitted."""
    parts = []
    for sign, least, most in ((optional(literal("+")), max(low, 0), high), (literal("-"), max(-high, 1), -low)):
        if least <= most:
            magnitude = from_machine(Magnitude(low=least, high=most, step=1, places=0))
            parts.append(concat(sign, optional(literal("0")), magnitude))
    return union(*parts)


def _scientific(bounds: Bounds, fraction_digits: int) -> Expression:
    """``d.ddde±xx`` with the exponents for which every number lies within the bounds."""
    mantissa = concat(chars("123456789"), optional(concat(literal("."), repeat(_DIGIT, 1, fraction_digits))))
    low, high = _bound(bounds, upper=False), _bound(bounds, upper=True)
    positive = _decades(low, high)
    negative = _decades(None if high is None else -high, None if low is None else -low)
    return union(
        EMPTY if positive is None else concat(mantissa, chars("eE"), _exponent(*positive)),
        EMPTY if negative is None else concat(literal("-"), mantissa, chars("eE"), _exponent(*negative)),
    )


def _bound(bounds: Bounds, *, upper: bool) -> Fraction | None:
    """The lower or upper bound, an exclusive one moved to where decimals are read as doubles beyond it."""
    found = [exact(v) for v in [bounds.maximum if upper else bounds.minimum] if v is not None]
    if upper:
        found += [_read_below(exact(v)) for v in [bounds.exclusive_maximum] if v is not None]
    else:
        found += [_read_above(exact(v)) for v in [bounds.exclusive_minimum] if v is not None]
    return (min if upper else max)(found, default=None)


def _read_above(value: Fraction) -> Fraction:
    """Decimals above this are read as doubles above what the value is read as, and are above the value."""
    if abs(value) > _LARGEST:
        return value
    read = float(value)
    return max(value, (Fraction(read) + Fraction(nextafter(read, inf))) / 2)


def _read_below(value: Fraction) -> Fraction:
    return -_read_above(-value)


def _decades(low: Fraction | None, high: Fraction | None) -> tuple[int, int] | None:
    """The exponents e with low < 10^e and 10^(e+1) <= high, or None where there are none."""
    first, last = -EXPONENT, EXPONENT
    if low is not None and low > 0:
        first = max(first, _power_above(low))
    if high is not None:
        if high <= 0:
            return None
        last = min(last, _power_above(high) - 1)
        while last >= first and Fraction(10) ** (last + 1) > high:
            last -= 1
    return (first, last) if first <= last else None


def _power_above(value: Fraction) -> int:
    """The smallest e with 10^e > value."""
    exponent = len(str(value.numerator)) - len(str(value.denominator)) - 1
    while Fraction(10) ** exponent <= value:
        exponent += 1
    return exponent
