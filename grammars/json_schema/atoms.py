"""What can be said of the members of an object and the items of an array.

Everything else a schema says of containers is a Boolean combination of these: `required` is "not every member named k
is impossible", `contains` is an `AtLeastItems`, `additionalProperties` an `EveryMember` over the keys not named
elsewhere.

Invariant: atoms are values: equal ones are interchangeable, and they say nothing of where in a schema they come from.
"""

from __future__ import annotations

from dataclasses import dataclass

UNBOUNDED = 1 << 60


@dataclass(frozen=True, slots=True)
class KeySet:
    """Keys that are among `names` or in one of `languages` (formulas over strings); with `negated`, all the others."""

    names: frozenset[str]
    languages: tuple[int, ...] = ()
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Outside:
    """Keys that are in none of `sets`."""

    sets: tuple[KeySet, ...]


@dataclass(frozen=True, slots=True)
class Unnamed:
    """Keys that no set names one by one; where they are spoken of, named keys come in order."""


Keys = KeySet | Outside | Unnamed
"""A set of keys."""


@dataclass(frozen=True, slots=True)
class EveryMember:
    """Every member whose key is in `keys` has a value that satisfies `goal`."""

    keys: Keys
    goal: int


@dataclass(frozen=True, slots=True)
class AtLeastMembers:
    """There are (still to come) at least `count` members, ``count >= 1``."""

    count: int


@dataclass(frozen=True, slots=True)
class EveryItem:
    """Every item with index in ``range(begin, end)``, counted from the next item on, satisfies `goal`."""

    begin: int
    end: int
    goal: int


@dataclass(frozen=True, slots=True)
class AtLeastItems:
    """There are (still to come) at least `count` items that satisfy `goal`, ``count >= 1``."""

    goal: int
    count: int


@dataclass(frozen=True, slots=True)
class UniqueItems:
    """No two items are equal."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether the value now being read satisfies `goal`; stands in formulas while a member or item is open."""

    goal: int


ObjectAtom = EveryMember | AtLeastMembers | Outcome
ArrayAtom = EveryItem | AtLeastItems | UniqueItems | Outcome
