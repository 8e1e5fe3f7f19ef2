"""JSON values as hashable constants, equal where JSON Schema calls them equal (1 and 1.0 are, 1 and true are not).

Invariant: numbers are exact (`Decimal`), never floats.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Any


@dataclass(frozen=True, slots=True)
class Array:
    """A constant array."""

    items: tuple[Constant, ...]


@dataclass(frozen=True, slots=True)
class Object:
    """A constant object; equal whatever the order of its members, which is kept as `order`."""

    members: frozenset[tuple[str, Constant]]
    order: tuple[str, ...] = field(compare=False)


@dataclass(frozen=True, slots=True)
class Number:
    """A constant number."""

    value: Decimal


Constant = None | bool | str | Number | Array | Object


def constant(value: Any) -> Constant:
    """The constant of a parsed JSON value."""
    match value:
        case None | bool() | str():
            return value
        case int() | float() | Decimal():
            return Number(exact(value))
        case list():
            return Array(tuple(constant(item) for item in value))
        case _:
            members = frozenset((key, constant(member)) for key, member in value.items())
            return Object(members, tuple(value))


def exact(value: float | Decimal) -> Decimal:
    """A JSON number without rounding; a float stands for the shortest decimal that reads back as it."""
    return value if isinstance(value, Decimal) else Decimal(repr(value))


def shortest_form(value: Decimal) -> Decimal:
    """The same number without zeros at its end; the default context would round it to 28 digits."""
    return value.normalize(Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN))
