"""Hash-consed Boolean formulas.

Formulas are small integers in an arena: equal formulas are one integer, so that states built from them can be compared
and memoised in constant time. They are kept in negation normal form (negation stands on atoms alone), flattened,
sorted and absorbed. Invariant: `FALSE` and `TRUE` occur in no other formula.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

FALSE = 0
TRUE = 1

AtomT = TypeVar("AtomT", bound=Hashable)
ResultT = TypeVar("ResultT")

_AND, _OR, _ATOM, _NOT = range(4)


class Formulas(Generic[AtomT]):
    """An arena of formulas over atoms of one type."""

    __slots__ = ("_assigned", "_atoms_of", "_ids", "_negations", "_nodes")

    def __init__(self) -> None:
        self._nodes: list[tuple[int, tuple[int, ...] | AtomT]] = [(_OR, ()), (_AND, ())]
        self._ids: dict[tuple[int, tuple[int, ...] | AtomT], int] = {self._nodes[0]: FALSE, self._nodes[1]: TRUE}
        self._negations: dict[int, int] = {FALSE: TRUE, TRUE: FALSE}
        self._assigned: dict[tuple[int, int, int], int] = {}
        self._atoms_of: dict[int, tuple[tuple[AtomT, bool], ...]] = {FALSE: (), TRUE: ()}

    def __len__(self) -> int:
        return len(self._nodes)

    def atom(self, value: AtomT) -> int:
        """The formula that is this atom."""
        return self._intern((_ATOM, value))

    def all_of(self, parts: Iterable[int]) -> int:
        """Conjunction; of nothing it is TRUE."""
        return self._join(_AND, parts)

    def any_of(self, parts: Iterable[int]) -> int:
        """Disjunction; of nothing it is FALSE."""
        return self._join(_OR, parts)

    def negate(self, formula: int) -> int:
        """Complement, in negation normal form."""
        known = self._negations.get(formula)
        if known is not None:
            return known
        kind, args = self._nodes[formula]
        if kind == _ATOM:
            result = self._intern((_NOT, args))
        else:
            result = self._join(_OR if kind == _AND else _AND, [self.negate(part) for part in args])  # type: ignore[union-attr]
        self._negations[formula] = result
        self._negations[result] = formula
        return result

    def choose(self, condition: int, then: int, otherwise: int) -> int:
        """``(condition and then) or (not condition and otherwise)``, simplified where an arm is constant."""
        if then == otherwise:
            return then
        if then == TRUE:
            return self.any_of((condition, otherwise))
        if otherwise == FALSE:
            return self.all_of((condition, then))
        negation = self.negate(condition)
        if then == FALSE:
            return self.all_of((negation, otherwise))
        if otherwise == TRUE:
            return self.any_of((negation, then))
        return self.any_of((self.all_of((condition, then)), self.all_of((negation, otherwise))))

    def exactly_one(self, parts: list[int]) -> int:
        """True where one part holds and no other. Balanced, so that its depth is logarithmic in the number of parts."""
        return self._one_and_none([part for part in parts if part != FALSE])[0]

    def _one_and_none(self, parts: list[int]) -> tuple[int, int]:
        if not parts:
            return FALSE, TRUE
        if len(parts) == 1:
            return parts[0], self.negate(parts[0])
        middle = len(parts) // 2
        one_left, none_left = self._one_and_none(parts[:middle])
        one_right, none_right = self._one_and_none(parts[middle:])
        one = self.any_of((self.all_of((one_left, none_right)), self.all_of((none_left, one_right))))
        return one, self.all_of((none_left, none_right))

    def substitute(self, formula: int, image: Callable[[AtomT], int], memo: dict[int, int]) -> int:
        """Replace every atom by the formula ``image(atom)``. ``memo`` may be shared by calls with the same image."""
        if formula <= TRUE:
            return formula
        known = memo.get(formula)
        if known is not None:
            return known
        kind, args = self._nodes[formula]
        if kind == _ATOM:
            result = image(args)  # type: ignore[arg-type]
        elif kind == _NOT:
            result = self.negate(image(args))  # type: ignore[arg-type]
        else:
            result = self._substitute_join(kind, args, image, memo)  # type: ignore[arg-type]
        memo[formula] = result
        return result

    def assign(self, formula: int, atom: AtomT, truth: int) -> int:
        """Replace one atom by TRUE or FALSE. Remembered, and parts without the atom are not looked into."""
        if all(other != atom for other, _ in self.atoms(formula)):
            return formula
        key = (formula, self.atom(atom), truth)
        known = self._assigned.get(key)
        if known is None:
            kind, args = self._nodes[formula]
            if kind in (_ATOM, _NOT):
                known = truth if kind == _ATOM else 1 - truth
            else:
                known = self._join(kind, [self.assign(part, atom, truth) for part in args])  # type: ignore[union-attr]
            self._assigned[key] = known
        return known

    def fold(
        self,
        formula: int,
        leaf: Callable[[AtomT, bool], ResultT],
        join: Callable[[bool, list[ResultT]], ResultT],
    ) -> ResultT:
        """Evaluate bottom-up: ``leaf(atom, is_positive)``, ``join(is_conjunction, parts)``, once for every part."""
        return self._fold(formula, leaf, join, {})

    def _fold(
        self,
        formula: int,
        leaf: Callable[[AtomT, bool], ResultT],
        join: Callable[[bool, list[ResultT]], ResultT],
        memo: dict[int, ResultT],
    ) -> ResultT:
        if formula not in memo:
            kind, args = self._nodes[formula]
            if kind in (_ATOM, _NOT):
                memo[formula] = leaf(args, kind == _ATOM)  # type: ignore[arg-type]
            else:
                memo[formula] = join(kind == _AND, [self._fold(part, leaf, join, memo) for part in args])  # type: ignore[union-attr]
        return memo[formula]

    def literal(self, formula: int) -> tuple[AtomT, bool] | None:
        """The atom of a formula that is one or its negation, and whether it is positive."""
        kind, args = self._nodes[formula]
        return (args, kind == _ATOM) if kind in (_ATOM, _NOT) else None  # type: ignore[return-value]

    def parts(self, formula: int) -> tuple[bool, tuple[int, ...]]:
        """Whether a formula is a conjunction, and its parts; a literal is a conjunction of itself."""
        kind, args = self._nodes[formula]
        return (kind == _AND, args) if kind in (_AND, _OR) else (True, (formula,))  # type: ignore[return-value]

    def conjuncts(self, formula: int) -> tuple[int, ...]:
        """The parts of a conjunction; of any other formula, itself."""
        is_conjunction, parts = self.parts(formula)
        return parts if is_conjunction else (formula,)

    def disjuncts(self, formula: int) -> tuple[int, ...]:
        """The parts of a disjunction; of any other formula, itself."""
        kind, args = self._nodes[formula]
        return args if kind == _OR else (formula,)  # type: ignore[return-value]

    def atoms(self, formula: int) -> tuple[tuple[AtomT, bool], ...]:
        """The distinct (atom, is positive) pairs of a formula, in order of first occurrence."""
        known = self._atoms_of.get(formula)
        if known is not None:
            return known
        literal = self.literal(formula)
        if literal is not None:
            found: tuple[tuple[AtomT, bool], ...] = (literal,)
        else:
            _, parts = self.parts(formula)
            found = tuple(dict.fromkeys(pair for part in parts for pair in self.atoms(part)))
        self._atoms_of[formula] = found
        return found

    def _substitute_join(
        self, kind: int, args: tuple[int, ...], image: Callable[[AtomT], int], memo: dict[int, int]
    ) -> int:
        absorbing = FALSE if kind == _AND else TRUE
        parts = []
        for part in args:
            replaced = self.substitute(part, image, memo)
            if replaced == absorbing:
                return absorbing
            parts.append(replaced)
        return self._join(kind, parts)

    def _join(self, kind: int, parts: Iterable[int]) -> int:
        absorbing, neutral = (FALSE, TRUE) if kind == _AND else (TRUE, FALSE)
        flat: set[int] = set()
        for part in parts:
            if part == absorbing:
                return absorbing
            if part == neutral:
                continue
            inner_kind, inner = self._nodes[part]
            if inner_kind == kind:
                flat.update(inner)  # type: ignore[arg-type]
            else:
                flat.add(part)
        if not flat:
            return neutral
        if len(flat) == 1:
            return flat.pop()
        if any(self._negations.get(part) in flat for part in flat):
            return absorbing
        dual = _OR if kind == _AND else _AND
        kept = sorted(part for part in flat if not self._is_absorbed(part, dual, flat))
        return kept[0] if len(kept) == 1 else self._intern((kind, tuple(kept)))

    def _is_absorbed(self, part: int, dual: int, among: set[int]) -> bool:
        """``a or (a and b)`` is ``a``, and dually."""
        kind, args = self._nodes[part]
        return kind == dual and any(inner in among for inner in args)  # type: ignore[union-attr]

    def _intern(self, node: tuple[int, tuple[int, ...] | AtomT]) -> int:
        known = self._ids.get(node)
        if known is None:
            known = len(self._nodes)
            self._ids[node] = known
            self._nodes.append(node)
        return known
