"""Objects by derivatives: what is asked of the members still to come, after each member.

The keys of one object fall into *classes*: each key that the schema names is a class, and the others are told apart
only by which of the schema's key languages they are in. A state is which named keys may still come and what is still
asked.

Invariant: a residue that is not FALSE can be completed with the keys that remain; dead ones are replaced by FALSE.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from grammars.json_schema.atoms import AtLeastMembers, EveryMember, KeySet, ObjectAtom, Outcome
from grammars.json_schema.boolean import FALSE, TRUE, Formulas
from grammars.json_schema.keys import KeyClasses
from grammars.json_schema.leaves import Goals
from grammars.json_schema.outcomes import Residues, Split, split
from grammars.json_schema.search import Answering


@dataclass(frozen=True, slots=True)
class ObjectState:
    """Between two members.

    Attributes:
        classes: the classes of keys.
        remaining: bit set of the named keys that may still come.
        residues: what is asked of the members to come, one formula per outcome.
    """

    classes: KeyClasses
    remaining: int
    residues: Residues


@dataclass(frozen=True, slots=True)
class Successor:
    """One way to go on: a child that meets `goal` leads to `state`."""

    goal: int
    state: ObjectState


class Objects:
    """Derivatives of formulas over `ObjectAtom`s."""

    def __init__(self, goals: Goals) -> None:
        self.formulas: Formulas[ObjectAtom] = Formulas()
        self._goals = goals

    def every(self, keys: KeySet, goal: int) -> int:
        """The formula of `EveryMember`."""
        nothing = not keys.negated and not keys.names and not keys.languages
        return TRUE if goal == TRUE or nothing else self.formulas.atom(EveryMember(keys, goal))

    def has(self, name: str) -> int:
        """There is a member with this key."""
        return self.formulas.negate(self.every(KeySet(frozenset((name,))), FALSE))

    def at_least(self, count: int) -> int:
        """The formula of `AtLeastMembers`, for any count."""
        return TRUE if count <= 0 else self.formulas.atom(AtLeastMembers(count))

    def key_sets(self, formula: int) -> list[KeySet]:
        """The sets of keys that ``formula`` speaks of, in order of first occurrence."""
        atoms = self.formulas.atoms(formula)
        return list(dict.fromkeys(atom.keys for atom, _ in atoms if isinstance(atom, EveryMember)))

    def normalised(self, classes: KeyClasses, remaining: int, residues: Residues) -> Residues:
        """``residues`` without what no remaining key can bear on."""
        memo: dict[int, int] = {}
        return tuple(
            self.formulas.substitute(residue, lambda atom: self._later(classes, remaining, atom), memo)
            for residue in residues
        )

    def closing(self, residues: Residues) -> int | None:
        """The index of the residue that holds if the object ends here."""
        for index, residue in enumerate(residues):
            if residue and self.formulas.substitute(residue, _at_end, {}) == TRUE:
                return index
        return None

    def step(self, state: ObjectState, key_class: int) -> Answering[list[Successor]]:
        """Ways to go on after a key of ``key_class``; dead ones are left out."""
        remaining, found = yield from self._opened(state, key_class)
        live: Split = {}
        for rest, goal in found.items():
            if not (yield ("goal", goal)):
                continue
            kept = []
            for residue in rest:
                alive = residue and (yield ("object", state.classes, remaining, residue))
                kept.append(residue if alive else FALSE)
            if any(kept):
                live[tuple(kept)] = self._goals.any_of((live.get(tuple(kept), FALSE), goal))
        return [Successor(goal, ObjectState(state.classes, remaining, rest)) for rest, goal in live.items()]

    def can_end(self, classes: KeyClasses, remaining: int, residue: int) -> Answering[bool]:
        """Whether some members complete ``residue``."""
        if self.closing((residue,)) is not None:
            return True
        state = ObjectState(classes, remaining, (residue,))
        for key_class in self._promising(state):
            after, found = yield from self._opened(state, key_class)
            for (rest,), goal in found.items():
                if not (yield ("goal", goal)):
                    continue
                for candidate in self._pumped(residue, rest):
                    if (yield ("object", classes, after, candidate)):
                        return True
        return False

    def _opened(self, state: ObjectState, key_class: int) -> Answering[tuple[int, Split]]:
        classes = state.classes
        remaining = classes.after(state.remaining, key_class)

        def image(atom: ObjectAtom) -> int:
            later = self._later(classes, remaining, atom)
            if isinstance(atom, AtLeastMembers):
                return self.at_least(atom.count - 1)
            assert isinstance(atom, EveryMember)
            if not classes.contains(atom.keys, key_class):
                return later
            now = FALSE if atom.goal == FALSE else self.formulas.atom(Outcome(atom.goal))
            return self.formulas.all_of((now, later))

        memo: dict[int, int] = {}
        opened = tuple(self.formulas.substitute(residue, image, memo) for residue in state.residues)
        counted = self.normalised(classes, remaining, opened)
        return remaining, (yield from split(self.formulas, self._goals, counted))

    def _later(self, classes: KeyClasses, remaining: int, atom: ObjectAtom) -> int:
        if isinstance(atom, EveryMember) and not classes.may_come(atom.keys, remaining):
            return TRUE
        if isinstance(atom, AtLeastMembers) and atom.count > classes.most(remaining):
            return FALSE
        return self.formulas.atom(atom)

    def _promising(self, state: ObjectState) -> Iterator[int]:
        """Classes of keys to try, those that the formula asks for before the others."""
        asked = [
            key_class
            for atom, positive in self.formulas.atoms(state.residues[0])
            if isinstance(atom, EveryMember) and not positive
            for key_class in state.classes.members(atom.keys, state.remaining)
        ]
        yield from dict.fromkeys([*sorted(asked), *state.classes.coming(state.remaining)])

    def _pumped(self, before: int, after: int) -> Iterator[int]:
        """``after``, preceded by what many such members leave where a member changes nothing but the count."""
        counts = [atom.count for atom, _ in self.formulas.atoms(before) if isinstance(atom, AtLeastMembers)]
        if counts and min(counts) > 2 and self._counted_down(before, 1) == after:
            yield self._counted_down(before, min(counts) - 1)
        yield after

    def _counted_down(self, residue: int, members: int) -> int:
        def image(atom: ObjectAtom) -> int:
            if isinstance(atom, AtLeastMembers):
                return self.at_least(atom.count - members)
            return self.formulas.atom(atom)

        return self.formulas.substitute(residue, image, {})


def _at_end(atom: ObjectAtom) -> int:
    return TRUE if isinstance(atom, EveryMember) else FALSE
