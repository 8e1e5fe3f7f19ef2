"""What can be said of a number.

Invariant: statements are about values, not texts, but for what they say of how a value is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class Integral:
    """An integer, written with at most so many zeros after a decimal point."""

    zeros: int


@dataclass(frozen=True, slots=True)
class Above:
    """Above `bound`, or equal to it where `inclusive`."""

    bound: Decimal
    inclusive: bool


@dataclass(frozen=True, slots=True)
class MultipleOf:
    """An integral multiple of `divisor`."""

    divisor: Decimal


@dataclass(frozen=True, slots=True)
class OneOf:
    """Equal to `value`, which is written with at most so many zeros after a decimal point where it is integral."""

    value: Decimal
    zeros: int


@dataclass(frozen=True, slots=True)
class Canonical:
    """Written without an exponent, without zeros at the end of a fraction, and not as minus zero."""


NumberAtom = Integral | Above | MultipleOf | OneOf | Canonical
