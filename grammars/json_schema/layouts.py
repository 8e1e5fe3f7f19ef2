"""Where an object stands between two members, and what can be told from the number of members alone.

Invariant: equal states of a layout are one object.
"""

from __future__ import annotations

from dataclasses import dataclass

from grammars.json_schema.boolean import TRUE
from grammars.json_schema.keys import KeyClasses, bits
from grammars.json_schema.outcomes import Residues
from grammars.json_schema.search import Answering


class Layout:
    """What all states of one object share.

    Attributes:
        classes: the classes of keys.
        goals: by class, what is asked of its members whatever else the object holds; TRUE where nothing is.
        possible: the classes of whose goals it is known already that some value meets them.
    """

    __slots__ = ("_states", "classes", "goals", "possible")

    def __init__(self, classes: KeyClasses, goals: dict[int, int]) -> None:
        self.classes = classes
        self.goals = goals
        self.possible = 0
        self._states: dict[tuple[int, int, Residues], ObjectState] = {}

    def state(self, remaining: int, needed: int, residues: Residues) -> ObjectState:
        """The one state with these parts."""
        key = (remaining, needed, residues)
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = ObjectState(self, remaining, needed, residues)
        return state

    def may_come(self, state: ObjectState, key_class: int, least: int, most: int) -> Answering[bool]:
        """Whether a key may come next where only the number of members is asked for."""
        remaining = self.classes.after(state.remaining, key_class)
        if most < 1 or not (yield from self._is_possible(key_class)):
            return False
        return (yield from self.are_enough(remaining, state.needed & ~(1 << key_class), least - 1, most - 1))

    def are_enough(self, remaining: int, needed: int, least: int, most: int) -> Answering[bool]:
        """Whether the remaining keys make between ``least`` and ``most`` members, all needed ones among them.

        They do not get into each other's way: any set of remaining keys can come in the order of the classes.
        """
        if needed & ~remaining or needed.bit_count() > most or least > most:
            return False
        for key_class in bits(needed & ~self.possible):
            if not (yield from self._is_possible(key_class)):
                return False
        for key_class in bits(remaining & ~self.possible):
            if self._are_many(remaining, least):
                break
            yield from self._is_possible(key_class)
        return self._are_many(remaining, least)

    def _is_possible(self, key_class: int) -> Answering[bool]:
        """Whether some value meets what is asked of the members of a class."""
        bit = 1 << key_class
        if not self.possible & bit and (yield ("goal", self.goals.get(key_class, TRUE))):
            self.possible |= bit
        return bool(self.possible & bit)

    def _are_many(self, remaining: int, least: int) -> bool:
        """Whether the classes of ``remaining`` that are known to be possible make ``least`` members."""
        if least <= 0:
            return True
        coming = remaining & self.possible
        return bool(coming & self.classes.rest_bits) or coming.bit_count() >= least


@dataclass(frozen=True, slots=True, eq=False)
class ObjectState:
    """Between two members. Equal states of a layout are one object.

    Attributes:
        layout: what all states of the object share.
        remaining: the classes of keys that may still come.
        needed: those of named keys that must still come.
        residues: what else is asked of the members to come, one formula per outcome.
    """

    layout: Layout
    remaining: int
    needed: int
    residues: Residues


@dataclass(frozen=True, slots=True)
class Successor:
    """One way to go on: a child that meets `goal` leads to `state`."""

    goal: int
    state: ObjectState
