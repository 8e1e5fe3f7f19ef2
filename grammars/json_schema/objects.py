"""Objects by derivatives: what is asked of the members still to come, after each member.

The keys of one object fall into *classes*: each key that the schema names is a class, and the others are told apart
only by which of the schema's key languages they are in. A state is which named keys may still come and what is still
asked.

Invariant: a residue that is not FALSE can be completed with the keys that remain; dead ones are replaced by FALSE.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from grammars.json_schema.atoms import AtLeastMembers, EveryMember, KeySet, ObjectAtom, Outcome
from grammars.json_schema.boolean import FALSE, TRUE, Formulas
from grammars.json_schema.keys import KeyClasses
from grammars.json_schema.leaves import Goals
from grammars.json_schema.outcomes import Residues, split
from grammars.json_schema.search import Answering


class Layout:
    """What all states of one object share.

    Attributes:
        classes: the classes of keys.
        goals: by class, what is asked of its members whatever else the object holds.
    """

    __slots__ = ("classes", "goals")

    def __init__(self, classes: KeyClasses, goals: dict[int, int]) -> None:
        self.classes = classes
        self.goals = goals


@dataclass(frozen=True, slots=True)
class ObjectState:
    """Between two members.

    Attributes:
        layout: what all states of the object share.
        remaining: bit set of the named keys that may still come.
        needed: bit set of the named keys that must still come.
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

    def opened(self, classes: KeyClasses, formulas: Residues) -> ObjectState:
        """The state after ``{``, with dead residues still in it.

        Of a single formula, conjuncts about one key each are taken out: they need no derivatives.
        """
        goals: dict[int, int] = {}
        needed = 0
        if len(formulas) == 1:
            others = []
            for part in self.formulas.conjuncts(formulas[0]):
                local = self._about_one_key(part)
                if local is None:
                    others.append(part)
                    continue
                name, goal = local
                index = classes.index_of[name]
                if goal is None:
                    needed |= 1 << index
                else:
                    key_class = len(classes.rest) + index
                    goals[key_class] = self._goals.all_of((goals.get(key_class, TRUE), goal))
            formulas = (self.formulas.all_of(others),)
        residues = self._normalised(classes, classes.all, formulas)
        return ObjectState(Layout(classes, goals), classes.all, needed, residues)

    def closing(self, state: ObjectState) -> int | None:
        """The index of the residue that holds if the object ends here."""
        if state.needed:
            return None
        for index, residue in enumerate(state.residues):
            if residue and self.formulas.substitute(residue, _at_end, {}) == TRUE:
                return index
        return None

    def step(self, state: ObjectState, key_class: int) -> Answering[list[Successor]]:
        """Ways to go on after a key of ``key_class``; dead ones are left out."""
        live: dict[ObjectState, int] = {}
        for after, goal in (yield from self._successors(state, key_class)):
            if not (yield ("goal", goal)):
                continue
            kept = yield from self.pruned(after)
            if any(kept.residues):
                live[kept] = self._goals.any_of((live.get(kept, FALSE), goal))
        return [Successor(goal, after) for after, goal in live.items()]

    def pruned(self, state: ObjectState) -> Answering[ObjectState]:
        """``state`` with dead residues replaced by FALSE."""
        kept: list[int] = []
        for residue in state.residues:
            single = replace(state, residues=(residue,)) if len(state.residues) > 1 else state
            kept.append(residue if residue != FALSE and (yield ("object", single)) else FALSE)
        return replace(state, residues=tuple(kept))

    def can_end(self, state: ObjectState) -> Answering[bool]:
        """Whether some members complete ``state``, which has one residue."""
        if self.closing(state) is not None:
            return True
        if state.residues == (TRUE,):
            return (yield from self._can_come(state))
        for key_class in self._promising(state):
            for after, goal in (yield from self._successors(state, key_class)):
                if not (yield ("goal", goal)):
                    continue
                for candidate in self._pumped(state, after):
                    if (yield ("object", candidate)):
                        return True
        return False

    def _can_come(self, state: ObjectState) -> Answering[bool]:
        """Whether every needed key may have some value."""
        offset = len(state.layout.classes.rest)
        for index in _bits(state.needed):
            if not (yield ("goal", state.layout.goals.get(offset + index, TRUE))):
                return False
        return True

    def _successors(self, state: ObjectState, key_class: int) -> Answering[list[tuple[ObjectState, int]]]:
        """The states after a key, and what each asks of the member's value; dead ones among them."""
        layout = state.layout
        classes = layout.classes
        remaining = classes.after(state.remaining, key_class)
        needed = state.needed & ~classes.bit(key_class)
        if needed & ~remaining:
            return []
        own = layout.goals.get(key_class, TRUE)
        if state.residues == (TRUE,):
            return [(ObjectState(layout, remaining, needed, state.residues), own)] if own != FALSE else []
        opened = self._read(state, key_class, remaining)
        found = yield from split(self.formulas, self._goals, opened, own)
        return [(ObjectState(layout, remaining, needed, rest), goal) for rest, goal in found.items()]

    def _read(self, state: ObjectState, key_class: int, remaining: int) -> Residues:
        classes = state.layout.classes

        def image(atom: ObjectAtom) -> int:
            if isinstance(atom, AtLeastMembers):
                fewer = self.at_least(atom.count - 1)
                return FALSE if atom.count - 1 > classes.most(remaining) else fewer
            assert isinstance(atom, EveryMember)
            later = self._later(classes, remaining, atom)
            if not classes.contains(atom.keys, key_class):
                return later
            now = FALSE if atom.goal == FALSE else self.formulas.atom(Outcome(atom.goal))
            return self.formulas.all_of((now, later))

        memo: dict[int, int] = {}
        return tuple(self.formulas.substitute(residue, image, memo) for residue in state.residues)

    def _about_one_key(self, part: int) -> tuple[str, int | None] | None:
        """The key and goal of "members with this key meet a goal"; no goal for "there is a member with this key"."""
        literal = self.formulas.literal(part)
        if literal is None:
            return None
        atom, positive = literal
        if not isinstance(atom, EveryMember):
            return None
        keys = atom.keys
        if keys.negated or keys.languages or len(keys.names) != 1:
            return None
        (name,) = keys.names
        if positive:
            return name, atom.goal
        return (name, None) if atom.goal == FALSE else None

    def _normalised(self, classes: KeyClasses, remaining: int, residues: Residues) -> Residues:
        """``residues`` without what no remaining key can bear on."""
        memo: dict[int, int] = {}
        return tuple(
            self.formulas.substitute(residue, lambda atom: self._later(classes, remaining, atom), memo)
            for residue in residues
        )

    def _later(self, classes: KeyClasses, remaining: int, atom: ObjectAtom) -> int:
        if isinstance(atom, EveryMember) and not classes.may_come(atom.keys, remaining):
            return TRUE
        if isinstance(atom, AtLeastMembers) and atom.count > classes.most(remaining):
            return FALSE
        return self.formulas.atom(atom)

    def _promising(self, state: ObjectState) -> Iterator[int]:
        """Classes of keys to try, those that are asked for before the others."""
        classes = state.layout.classes
        asked = [len(classes.rest) + index for index in _bits(state.needed)]
        asked += [
            key_class
            for atom, positive in self.formulas.atoms(state.residues[0])
            if isinstance(atom, EveryMember) and not positive
            for key_class in classes.members(atom.keys, state.remaining)
        ]
        yield from dict.fromkeys([*sorted(asked), *classes.coming(state.remaining)])

    def _pumped(self, before: ObjectState, after: ObjectState) -> Iterator[ObjectState]:
        """``after``, preceded by what many such members leave where a member changes nothing but the count."""
        (residue,) = before.residues
        counts = [atom.count for atom, _ in self.formulas.atoms(residue) if isinstance(atom, AtLeastMembers)]
        unchanged = (after.remaining, after.needed) == (before.remaining, before.needed)
        if unchanged and counts and min(counts) > 2 and (self._counted_down(residue, 1),) == after.residues:
            yield replace(after, residues=(self._counted_down(residue, min(counts) - 1),))
        yield after

    def _counted_down(self, residue: int, members: int) -> int:
        def image(atom: ObjectAtom) -> int:
            if isinstance(atom, AtLeastMembers):
                return self.at_least(atom.count - members)
            return self.formulas.atom(atom)

        return self.formulas.substitute(residue, image, {})


def _at_end(atom: ObjectAtom) -> int:
    return TRUE if isinstance(atom, EveryMember) else FALSE


def _bits(mask: int) -> Iterator[int]:
    """The places of the set bits, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
