"""Arrays by derivatives: what is asked of the items still to come, after each item.

Invariant: a residue that is not FALSE can be completed; dead ones are replaced by FALSE as soon as they arise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from grammars.json_schema.atoms import UNBOUNDED, ArrayAtom, AtLeastItems, EveryItem, Outcome, UniqueItems
from grammars.json_schema.boolean import FALSE, TRUE, Formulas
from grammars.json_schema.leaves import Goals
from grammars.json_schema.outcomes import Residues, Split, split
from grammars.json_schema.search import Answering


class Arrays:
    """Derivatives of formulas over `ArrayAtom`s."""

    def __init__(self, goals: Goals) -> None:
        self.formulas: Formulas[ArrayAtom] = Formulas()
        self._goals = goals

    def every(self, begin: int, end: int, goal: int) -> int:
        """The formula of `EveryItem`."""
        return TRUE if goal == TRUE or begin >= end else self.formulas.atom(EveryItem(begin, end, goal))

    def at_least(self, goal: int, count: int) -> int:
        """The formula of `AtLeastItems`, for any count."""
        if count <= 0:
            return TRUE
        return FALSE if goal == FALSE else self.formulas.atom(AtLeastItems(goal, count))

    def unique(self) -> int:
        """The formula of `UniqueItems`."""
        return self.formulas.atom(UniqueItems())

    def is_unique(self, formula: int) -> bool:
        """Whether a formula asks anything of repeats."""
        return any(isinstance(atom, UniqueItems) for atom, _ in self.formulas.atoms(formula))

    def wants_repeats(self, formula: int) -> bool:
        """Whether a formula holds of arrays with repeats alone, which nothing here can bring about."""
        if not self.is_unique(formula):
            return False
        with_them, without = (self._with_uniqueness(formula, truth) for truth in (FALSE, TRUE))
        return without == FALSE and with_them != FALSE

    def _with_uniqueness(self, formula: int, truth: int) -> int:
        formulas = self.formulas
        return formulas.substitute(
            formula, lambda atom: truth if isinstance(atom, UniqueItems) else formulas.atom(atom), {}
        )

    def without_repeats(self, formula: int, canonical: int, count_values: Callable[[int], int | None]) -> int:
        """A formula that may hold `UniqueItems`, restricted to arrays in which items are in fact unique, without that
        atom.

        Items meet the goal ``canonical``, so that equal ones are written alike. ``count_values(goal)`` is a number of
        different values that meet a goal, None for many. Arrays with more items than that are left out; where it is
        hard to tell, those with more than one are.
        """
        formulas = self.formulas

        def image(atom: ArrayAtom) -> int:
            if isinstance(atom, AtLeastItems):
                values = count_values(self._goals.all_of((atom.goal, canonical)))
                return FALSE if values is not None and values < atom.count else formulas.atom(atom)
            return formulas.atom(atom)

        written = self.every(0, UNBOUNDED, canonical)
        unique = self._with_uniqueness(formula, TRUE)
        rest = formulas.all_of((formulas.substitute(unique, image, {}), written))
        most = self._most_unique(rest, count_values)
        return rest if most is None else formulas.all_of((rest, formulas.negate(self.at_least(TRUE, most + 1))))

    def _most_unique(self, formula: int, count_values: Callable[[int], int | None]) -> int | None:
        """How many different items there can be whichever come first; None for many, 1 where it is hard to tell.

        An item finds a value of its own where more values are possible at its place than items came before.
        """
        asked = [pair for pair in self.formulas.atoms(formula) if isinstance(pair[0], EveryItem)]
        if not all(positive for _, positive in asked):
            return 1
        items = [atom for atom, _ in asked if isinstance(atom, EveryItem)]
        conjuncts = self.formulas.conjuncts(formula)
        if not all(self.formulas.atom(atom) in conjuncts for atom in items):
            together = self._goals.all_of(atom.goal for atom in items)
            return None if together != FALSE and count_values(together) is None else 1
        for begin, end, goal in self._goals_in_turn(items):
            count = count_values(goal)
            if count is not None and count < end:
                return max(begin, count)
        return None

    def _goals_in_turn(self, items: list[EveryItem]) -> Iterator[tuple[int, int, int]]:
        """(begin, end, goal): what is asked of the items with index in ``range(begin, end)``, in turn."""
        begins = sorted({0, *(place for atom in items for place in (atom.begin, atom.end) if place < UNBOUNDED)})
        for begin, end in zip(begins, [*begins[1:], UNBOUNDED], strict=True):
            yield begin, end, self._goals.all_of(atom.goal for atom in items if atom.begin <= begin < atom.end)

    def closing(self, residues: Residues) -> int | None:
        """The index of the residue that holds if the array ends here."""
        for index, residue in enumerate(residues):
            if residue and self.formulas.substitute(residue, _at_end, {}) == TRUE:
                return index
        return None

    def step(self, residues: Residues) -> Answering[Split]:
        """The next item's goals by what they leave; dead rests are left out."""
        memo: dict[int, int] = {}
        opened = tuple(self.formulas.substitute(residue, self._after_item, memo) for residue in residues)
        found = yield from split(self.formulas, self._goals, opened)
        live: Split = {}
        for rest, goal in found.items():
            if not (yield ("goal", goal)):
                continue
            kept = yield from self.pruned(rest)
            if any(kept):
                live[kept] = self._goals.any_of((live.get(kept, FALSE), goal))
        return live

    def pruned(self, residues: Residues) -> Answering[Residues]:
        """``residues`` with dead ones replaced by FALSE."""
        alive: list[bool] = []
        for residue in residues:
            alive.append(residue != FALSE and (yield ("array", residue)))  # noqa: PERF401 - no yield in comprehensions
        return tuple(residue if is_alive else FALSE for residue, is_alive in zip(residues, alive, strict=True))

    def can_end(self, residue: int) -> Answering[bool]:
        """Whether some items complete ``residue``."""
        if self.closing((residue,)) is not None:
            return True
        memo: dict[int, int] = {}
        opened = self.formulas.substitute(residue, self._after_item, memo)
        found = yield from split(self.formulas, self._goals, (opened,))
        for (rest,), goal in found.items():
            if not (yield ("goal", goal)):
                continue
            for candidate in self._pumped(residue, rest):
                if (yield ("array", candidate)):
                    return True
        return False

    def _after_item(self, atom: ArrayAtom) -> int:
        formulas = self.formulas
        if isinstance(atom, EveryItem):
            end = atom.end if atom.end == UNBOUNDED else atom.end - 1
            if atom.begin > 0:
                return self.every(atom.begin - 1, end, atom.goal)
            now = FALSE if atom.goal == FALSE else formulas.atom(Outcome(atom.goal))
            return formulas.all_of((now, self.every(0, end, atom.goal)))
        assert isinstance(atom, AtLeastItems)
        fewer = self.at_least(atom.goal, atom.count - 1)
        if atom.goal == TRUE:
            return fewer
        return formulas.choose(formulas.atom(Outcome(atom.goal)), fewer, formulas.atom(atom))

    def _pumped(self, before: int, after: int) -> Iterator[int]:
        """``after``, preceded by what many such items leave where an item changes nothing but counts of items."""
        counted = [atom for atom, _ in self.formulas.atoms(before) if isinstance(atom, AtLeastItems)]
        for goals in (frozenset((TRUE,)), frozenset(atom.goal for atom in counted)):
            fewest = min((atom.count for atom in counted if atom.goal in goals), default=0)
            if fewest > 2 and self._counted_down(before, 1, goals) == after:
                yield self._counted_down(before, fewest - 1, goals)
        yield after

    def _counted_down(self, residue: int, items: int, goals: frozenset[int]) -> int:
        """``residue`` after so many items that meet each of ``goals``, as far as it counts those."""

        def image(atom: ArrayAtom) -> int:
            if isinstance(atom, AtLeastItems) and atom.goal in goals:
                return self.at_least(atom.goal, atom.count - items)
            return self.formulas.atom(atom)

        return self.formulas.substitute(residue, image, {})


def _at_end(atom: ArrayAtom) -> int:
    return TRUE if isinstance(atom, EveryItem | UniqueItems) else FALSE
