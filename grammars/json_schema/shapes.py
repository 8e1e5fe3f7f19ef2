"""What a schema says of a value, type by type.

The first byte of a JSON value tells its type, so that a schema falls apart into six independent parts. Boolean
operators work part by part. Invariant: a part is about values of its own type only: TRUE where any such value is
valid, FALSE where none is.
"""

from __future__ import annotations

from dataclasses import dataclass

from grammars.json_schema.arrays import Arrays
from grammars.json_schema.boolean import FALSE, TRUE
from grammars.json_schema.languages import Languages
from grammars.json_schema.objects import Objects

ANY_BOOLEAN = 3
"""Bit 0 stands for false, bit 1 for true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One part per type.

    Attributes:
        null: whether null is valid.
        booleans: bit set of the valid ones.
        number: a formula over numbers (`Languages.numbers`).
        string: a formula over strings (`Languages.strings`).
        array: a formula over items (`Arrays.formulas`).
        object: a formula over members (`Objects.formulas`).
        order: declared keys, in the order in which they are generated.
    """

    null: bool = True
    booleans: int = ANY_BOOLEAN
    number: int = TRUE
    string: int = TRUE
    array: int = TRUE
    object: int = TRUE
    order: tuple[str, ...] = ()


ANYTHING = Shape()
NOTHING = Shape(null=False, booleans=0, number=FALSE, string=FALSE, array=FALSE, object=FALSE)


class Shapes:
    """Boolean operators over shapes."""

    def __init__(self, languages: Languages, arrays: Arrays, objects: Objects) -> None:
        self._numbers = languages.numbers
        self._strings = languages.strings
        self._arrays = arrays.formulas
        self._objects = objects.formulas

    def all_of(self, parts: list[Shape]) -> Shape:
        """Values valid under every part."""
        if len(parts) == 1:
            return parts[0]
        booleans = ANY_BOOLEAN
        for part in parts:
            booleans &= part.booleans
        return Shape(
            null=all(part.null for part in parts),
            booleans=booleans,
            number=self._numbers.all_of(part.number for part in parts),
            string=self._strings.all_of(part.string for part in parts),
            array=self._arrays.all_of(part.array for part in parts),
            object=self._objects.all_of(part.object for part in parts),
            order=merged_order(parts),
        )

    def any_of(self, parts: list[Shape]) -> Shape:
        """Values valid under at least one part."""
        if len(parts) == 1:
            return parts[0]
        booleans = 0
        for part in parts:
            booleans |= part.booleans
        return Shape(
            null=any(part.null for part in parts),
            booleans=booleans,
            number=self._numbers.any_of(part.number for part in parts),
            string=self._strings.any_of(part.string for part in parts),
            array=self._arrays.any_of(part.array for part in parts),
            object=self._objects.any_of(part.object for part in parts),
            order=merged_order(parts),
        )

    def exactly_one(self, parts: list[Shape]) -> Shape:
        """Values valid under one part and no other."""
        once = twice = 0
        for part in parts:
            twice |= once & part.booleans
            once |= part.booleans
        return Shape(
            null=sum(part.null for part in parts) == 1,
            booleans=once & ~twice,
            number=self._numbers.exactly_one([part.number for part in parts]),
            string=self._strings.exactly_one([part.string for part in parts]),
            array=self._arrays.exactly_one([part.array for part in parts]),
            object=self._objects.exactly_one([part.object for part in parts]),
            order=merged_order(parts),
        )

    def negate(self, part: Shape) -> Shape:
        """Values invalid under ``part``."""
        return Shape(
            null=not part.null,
            booleans=part.booleans ^ ANY_BOOLEAN,
            number=self._numbers.negate(part.number),
            string=self._strings.negate(part.string),
            array=self._arrays.negate(part.array),
            object=self._objects.negate(part.object),
            order=part.order,
        )


def merged_order(parts: list[Shape]) -> tuple[str, ...]:
    """The keys of all parts, each where it comes first."""
    orders = [part.order for part in parts if part.order]
    if len(orders) < 2:
        return orders[0] if orders else ()
    return tuple(dict.fromkeys(name for order in orders for name in order))
