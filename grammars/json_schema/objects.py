"""Objects by derivatives: what is asked of the members still to come, after each member.

What a formula asks of single members, or that a key comes, needs no derivatives: it stands in the object's *layout*
and in bit sets. What is left (counts, alternatives) is a *residue*, a formula that each member changes.

Invariant: a residue that is not FALSE can be completed with the keys that remain; dead ones are replaced by FALSE.
"""

from __future__ import annotations

from collections.abc import Iterator

from grammars.json_schema.atoms import UNBOUNDED, AtLeastMembers, EveryMember, Keys, KeySet, ObjectAtom, Outcome
from grammars.json_schema.boolean import FALSE, TRUE, Formulas
from grammars.json_schema.keys import KeyClasses, bits
from grammars.json_schema.layouts import Layout, ObjectState, Successor
from grammars.json_schema.leaves import Goals
from grammars.json_schema.outcomes import Residues, split
from grammars.json_schema.search import Answering

_NOTHING_LEFT = (TRUE,)


class Objects:
    """Derivatives of formulas over `ObjectAtom`s."""

    def __init__(self, goals: Goals) -> None:
        self.formulas: Formulas[ObjectAtom] = Formulas()
        self._goals = goals

    def every(self, keys: Keys, goal: int) -> int:
        """The formula of `EveryMember`."""
        nothing = keys == KeySet(frozenset())
        return TRUE if goal == TRUE or nothing else self.formulas.atom(EveryMember(keys, goal))

    def has(self, name: str) -> int:
        """There is a member with this key."""
        return self.formulas.negate(self.every(KeySet(frozenset((name,))), FALSE))

    def at_least(self, count: int) -> int:
        """The formula of `AtLeastMembers`, for any count."""
        return TRUE if count <= 0 else self.formulas.atom(AtLeastMembers(count))

    def key_sets(self, formula: int) -> list[Keys]:
        """The sets of keys that ``formula`` speaks of, in order of first occurrence."""
        atoms = self.formulas.atoms(formula)
        return list(dict.fromkeys(atom.keys for atom, _ in atoms if isinstance(atom, EveryMember)))

    def opened(self, classes: KeyClasses, formulas: Residues) -> ObjectState:
        """The state after ``{``, with dead residues still in it."""
        goals: dict[int, int] = {}
        needed = 0
        if len(formulas) == 1:
            others = []
            for part in self.formulas.conjuncts(formulas[0]):
                atom, positive = self.formulas.literal(part) or (None, False)
                if not isinstance(atom, EveryMember):
                    others.append(part)
                    continue
                within = classes.within(atom.keys)
                if positive:
                    for key_class in bits(within):
                        goals[key_class] = self._goals.all_of((goals.get(key_class, TRUE), atom.goal))
                elif atom.goal == FALSE and within.bit_count() == 1 and within > classes.rest_bits:
                    needed |= within
                else:
                    others.append(part)
            formulas = (self.formulas.all_of(others),)
        for key_class, goal in goals.items():
            if goal == FALSE and needed >> key_class & 1:
                formulas = (FALSE,)
        layout = Layout(classes, goals)
        return layout.state(classes.all, needed, self._normalised(classes, classes.all, formulas))

    def closing(self, state: ObjectState) -> int | None:
        """The index of the residue that holds if the object ends here."""
        if state.needed:
            return None
        for index, residue in enumerate(state.residues):
            if residue and self.formulas.substitute(residue, _at_end, {}) == TRUE:
                return index
        return None

    def is_empty_allowed(self, formula: int) -> bool:
        """Whether ``{}`` satisfies a formula."""
        return self.formulas.substitute(formula, _at_end, {}) == TRUE

    def coming(self, state: ObjectState) -> Answering[int]:
        """The classes of keys that may come next."""
        layout = state.layout
        coming = layout.classes.coming(state.remaining, state.needed)
        bounds = self._counts(state.residues[0]) if len(state.residues) == 1 else None
        for key_class in bits(coming):
            if bounds is not None:
                may_come = yield from layout.may_come(state, key_class, *bounds)
            else:
                may_come = bool((yield from self.step(state, key_class)))
            if not may_come:
                coming &= ~(1 << key_class)
        return coming

    def simple_step(self, state: ObjectState, key_class: int) -> list[Successor] | None:
        """`step` after a key that may come, where nothing is asked of the object as a whole; else None."""
        if state.residues != _NOTHING_LEFT:
            return None
        layout = state.layout
        remaining = layout.classes.after(state.remaining, key_class)
        after = layout.state(remaining, state.needed & ~(1 << key_class), state.residues)
        return [Successor(layout.goals.get(key_class, TRUE), after)]

    def step(self, state: ObjectState, key_class: int) -> Answering[list[Successor]]:
        """Ways to go on after a key of ``key_class``; dead ones are left out."""
        live: dict[ObjectState, int] = {}
        remaining = state.layout.classes.after(state.remaining, key_class)
        for after, goal in (yield from self._successors(state, key_class, remaining)):
            if goal != TRUE and not (yield ("goal", goal)):
                continue
            kept = yield from self.pruned(after)
            if any(kept.residues):
                live[kept] = self._goals.any_of((live.get(kept, FALSE), goal))
        return [Successor(goal, after) for after, goal in live.items()]

    def pruned(self, state: ObjectState) -> Answering[ObjectState]:
        """``state`` with dead residues replaced by FALSE."""
        kept: list[int] = []
        for residue in state.residues:
            single = state.layout.state(state.remaining, state.needed, (residue,))
            kept.append(residue if residue != FALSE and (yield ("object", single)) else FALSE)
        return state.layout.state(state.remaining, state.needed, tuple(kept))

    def can_end(self, state: ObjectState) -> Answering[bool]:
        """Whether some members complete ``state``, which has one residue."""
        if self.closing(state) is not None:
            return True
        bounds = self._counts(state.residues[0])
        if bounds is not None:
            return (yield from state.layout.are_enough(state.remaining, state.needed, *bounds))
        classes = state.layout.classes
        for key_class in self._promising(state):
            remaining = classes.after_in_order(state.remaining, key_class)
            for after, goal in (yield from self._successors(state, key_class, remaining)):
                if not (yield ("goal", goal)):
                    continue
                for candidate in self._pumped(state, after):
                    if (yield ("object", candidate)):
                        return True
        return False

    def _counts(self, residue: int) -> tuple[int, int] | None:
        """The least and the most members that a residue asks for, where it asks nothing else."""
        least, most = 0, UNBOUNDED
        for part in self.formulas.conjuncts(residue):
            atom, positive = self.formulas.literal(part) or (None, False)
            if not isinstance(atom, AtLeastMembers):
                return None
            if positive:
                least = max(least, atom.count)
            else:
                most = min(most, atom.count - 1)
        return least, most

    def _successors(
        self, state: ObjectState, key_class: int, remaining: int
    ) -> Answering[list[tuple[ObjectState, int]]]:
        """The states after a key, with the classes that remain then, and what each asks of the member's value; dead
        ones among them.
        """
        layout = state.layout
        needed = state.needed & ~(1 << key_class)
        own = layout.goals.get(key_class, TRUE)
        if needed & ~remaining or own == FALSE:
            return []
        if state.residues == _NOTHING_LEFT:
            return [(layout.state(remaining, needed, state.residues), own)]
        opened = self._read(state, key_class, remaining)
        found = yield from split(self.formulas, self._goals, opened, own)
        return [(layout.state(remaining, needed, rest), goal) for rest, goal in found.items()]

    def _read(self, state: ObjectState, key_class: int, remaining: int) -> Residues:
        classes = state.layout.classes

        def image(atom: ObjectAtom) -> int:
            if isinstance(atom, AtLeastMembers):
                return FALSE if atom.count - 1 > classes.most(remaining) else self.at_least(atom.count - 1)
            assert isinstance(atom, EveryMember)
            later = self._later(classes, remaining, atom)
            if not classes.within(atom.keys) >> key_class & 1:
                return later
            now = FALSE if atom.goal == FALSE else self.formulas.atom(Outcome(atom.goal))
            return self.formulas.all_of((now, later))

        memo: dict[int, int] = {}
        return tuple(self.formulas.substitute(residue, image, memo) for residue in state.residues)

    def _normalised(self, classes: KeyClasses, remaining: int, residues: Residues) -> Residues:
        """``residues`` without what no remaining key can bear on."""
        memo: dict[int, int] = {}
        return tuple(
            self.formulas.substitute(residue, lambda atom: self._later(classes, remaining, atom), memo)
            for residue in residues
        )

    def _later(self, classes: KeyClasses, remaining: int, atom: ObjectAtom) -> int:
        if isinstance(atom, EveryMember) and not classes.within(atom.keys) & remaining:
            return TRUE
        if isinstance(atom, AtLeastMembers) and atom.count > classes.most(remaining):
            return FALSE
        return self.formulas.atom(atom)

    def _promising(self, state: ObjectState) -> Iterator[int]:
        """Classes of keys to try, those that are asked for before the others."""
        classes = state.layout.classes
        coming = classes.coming(state.remaining, state.needed)
        asked = state.needed
        for atom, positive in self.formulas.atoms(state.residues[0]):
            if isinstance(atom, EveryMember) and not positive:
                asked |= classes.within(atom.keys)
        yield from bits(coming & asked)
        yield from bits(coming & ~asked)

    def _pumped(self, before: ObjectState, after: ObjectState) -> Iterator[ObjectState]:
        """``after``, preceded by what many such members leave where a member changes nothing but the count."""
        (residue,) = before.residues
        counts = [atom.count for atom, _ in self.formulas.atoms(residue) if isinstance(atom, AtLeastMembers)]
        unchanged = (after.remaining, after.needed) == (before.remaining, before.needed)
        if unchanged and counts and min(counts) > 2 and (self._counted_down(residue, 1),) == after.residues:
            fewer = self._counted_down(residue, min(counts) - 1)
            yield after.layout.state(after.remaining, after.needed, (fewer,))
        yield after

    def _counted_down(self, residue: int, members: int) -> int:
        def image(atom: ObjectAtom) -> int:
            if isinstance(atom, AtLeastMembers):
                return self.at_least(atom.count - members)
            return self.formulas.atom(atom)

        return self.formulas.substitute(residue, image, {})


def _at_end(atom: ObjectAtom) -> int:
    return TRUE if isinstance(atom, EveryMember) else FALSE
