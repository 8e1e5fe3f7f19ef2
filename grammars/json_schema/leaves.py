"""What goals are made of: the things that can be asked of a value without looking into it.

Invariant: a leaf names a schema by its place and never holds it, so that recursive schemas need no unfolding.
"""

from __future__ import annotations

from dataclasses import dataclass

from grammars.json_schema.boolean import Formulas
from grammars.json_schema.constants import Constant
from grammars.json_schema.document import Scope

OPEN_LEVELS = 64
"""How deeply a value nests where the schema asks nothing of it."""
UNIQUE_LEVELS = 32
"""How deeply an item of an array without repeats nests."""


@dataclass(frozen=True, slots=True)
class Place:
    """A schema in the document, by its canonical JSON pointer, reached in a dynamic scope."""

    pointer: str
    scope: Scope = ()


@dataclass(frozen=True, slots=True)
class Equal:
    """The value equals a constant."""

    value: Constant


@dataclass(frozen=True, slots=True)
class Anything:
    """Any value with at most `levels` arrays and objects inside one another: where the schema asks nothing."""

    levels: int


@dataclass(frozen=True, slots=True)
class Canonical:
    """Written in the one way by which equal values are equal texts: objects have named keys alone, in order; strings
    and numbers one spelling. At most `levels` arrays and objects inside one another.
    """

    levels: int


Leaf = Place | Equal | Anything | Canonical

Goals = Formulas[Leaf]
"""The arena of goals: Boolean formulas over leaves."""
