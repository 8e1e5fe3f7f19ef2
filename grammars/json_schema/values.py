"""What can be said of whole values, and which of it some value meets.

A *goal* is a Boolean formula over leaves: a place in the schema, or a constant. Goals are what container formulas ask
of members and items. Invariant: a goal's shape is made once, when it is first asked for; leaves refer to schemas by
place, so recursive schemas need no unfolding.
"""

from __future__ import annotations

from collections.abc import Callable

from grammars.json_schema.arrays import Arrays
from grammars.json_schema.atoms import UNBOUNDED, EveryItem, Keys, KeySet, Unnamed
from grammars.json_schema.boolean import FALSE, TRUE, Formulas
from grammars.json_schema.constants import Array, Constant, Number, Object
from grammars.json_schema.counting import Counting
from grammars.json_schema.keys import KeyClasses
from grammars.json_schema.languages import Languages
from grammars.json_schema.layouts import ObjectState, Successor
from grammars.json_schema.leaves import UNIQUE_LEVELS, Anything, Canonical, Equal, Leaf, Place
from grammars.json_schema.objects import Objects
from grammars.json_schema.outcomes import Residues, Split
from grammars.json_schema.search import Answering, Question, Search
from grammars.json_schema.shapes import NOTHING, Shape, Shapes
from grammars.regular.charset import ANY, CharSet


class Values:
    """Goals, their shapes, and the derivatives of containers."""

    def __init__(
        self,
        translate: Callable[[Values, Place], Shape],
        *,
        in_order: bool = True,
        zeros: int = 0,
        characters: CharSet = ANY,
    ) -> None:
        """``in_order``: the declared keys of objects come in their order, before all others. ``zeros`` and
        ``characters``: see `Languages`.
        """
        self.goals: Formulas[Leaf] = Formulas()
        self.languages = Languages(zeros, characters)
        self.arrays = Arrays(self.goals)
        self.objects = Objects(self.goals)
        self.shapes = Shapes(self.languages, self.arrays, self.objects)
        self._translate = translate
        self._in_order = in_order
        self._leaf_shapes: dict[Leaf, Shape] = {}
        self._goal_shapes: dict[int, Shape] = {TRUE: Shape(), FALSE: NOTHING}
        self._search = Search(self._answer)
        self._classes: dict[tuple[tuple[Keys, ...], tuple[str, ...]], KeyClasses] = {}
        self._unique: dict[int, int] = {}
        self._openings: dict[tuple[Residues, tuple[str, ...]], ObjectState] = {}
        self._next_keys: dict[ObjectState, int] = {}
        self._object_steps: dict[tuple[ObjectState, int], tuple[Successor, ...]] = {}
        self._array_steps: dict[Residues, Split] = {}

    def shape(self, goal: int) -> Shape:
        """What ``goal`` says of each type of value."""
        shape = self._goal_shapes.get(goal)
        if shape is None:
            shape = self.goals.fold(goal, self._literal_shape, self._joined_shape)
            self._goal_shapes[goal] = shape
        return shape

    def leaf_shape(self, leaf: Leaf) -> Shape:
        """The shape of a single leaf."""
        shape = self._leaf_shapes.get(leaf)
        if shape is None:
            match leaf:
                case Place():
                    shape = self._translate(self, leaf)
                case Equal(value):
                    shape = self._constant_shape(value)
                case Canonical(levels):
                    shape = self._canonical_shape(levels)
                case Anything(0):
                    shape = Shape(array=FALSE, object=FALSE)
                case Anything(levels):
                    inner = self.goals.atom(Anything(levels - 1))
                    shape = Shape(
                        array=self.arrays.every(0, UNBOUNDED, inner),
                        object=self.objects.every(KeySet(frozenset(), negated=True), inner),
                    )
            self._leaf_shapes[leaf] = shape
        return shape

    def forget(self) -> None:
        """Drop what can be worked out again."""
        for known in (self._openings, self._next_keys, self._object_steps, self._array_steps, self._classes):
            known.clear()
        self._search = Search(self._answer)

    def __getstate__(self) -> dict[str, object]:
        self.forget()
        return self.__dict__

    def prepare(self, goal: int) -> None:
        """Do the work on a goal that may prove too much: its regular languages, and the classes of its keys.

        Raises ConstraintError where it does.
        """
        shape = self.shape(goal)
        self.languages.is_empty(shape.string)
        self.languages.is_empty_number(shape.number)
        if any(not isinstance(keys, KeySet) or keys.languages for keys in self.objects.key_sets(shape.object)):
            self._opened((shape.object,), shape.order)

    def is_possible(self, goal: int) -> bool:
        """Whether some value meets ``goal``."""
        return self._search.run(_ask(("goal", goal)))

    def is_met_flatly(self, goal: int) -> bool:
        """Whether a scalar meets ``goal``, or an array or an object with nothing in it."""
        shape = self.shape(goal)
        if shape.null or shape.booleans or self._is_scalar_possible(shape):
            return True
        return self.objects.is_empty_allowed(shape.object) or self.arrays.closing((shape.array,)) is not None

    def open_object(self, formulas: Residues, order: tuple[str, ...]) -> ObjectState | None:
        """The state after ``{``, or None where no members complete any of ``formulas``."""
        state = self.live_members(self._opened(formulas, order))
        return state if any(state.residues) else None

    def is_object_possible(self, formula: int, order: tuple[str, ...]) -> bool:
        """Whether `open_object` finds a state for a single formula, without looking for it where that is clear."""
        if formula == FALSE or self.objects.is_empty_allowed(formula):
            return formula != FALSE
        return self.open_object((formula,), order) is not None

    def next_keys(self, state: ObjectState) -> int:
        """The classes of keys that may come next."""
        known = self._next_keys.get(state)
        if known is None:
            known = self._next_keys[state] = self._search.run(self.objects.coming(state))
        return known

    def open_array(self, formulas: Residues) -> Residues | None:
        """The state after ``[``, or None where no items complete any of ``formulas``."""
        residues = self.live_items(tuple(self._without_repeats(formula) for formula in formulas))
        return residues if any(residues) else None

    def live_items(self, residues: Residues) -> Residues:
        """``residues`` with those replaced by FALSE that no items complete."""
        return self._search.run(self.arrays.pruned(residues))

    def live_members(self, state: ObjectState) -> ObjectState:
        """``state`` with the residues replaced by FALSE that no members complete."""
        return self._search.run(self.objects.pruned(state))

    def after_key(self, state: ObjectState, key_class: int) -> tuple[Successor, ...]:
        """The ways to go on after a key that may come."""
        known = self._object_steps.get((state, key_class))
        if known is None:
            simple = self.objects.simple_step(state, key_class)
            known = tuple(self._search.run(self.objects.step(state, key_class)) if simple is None else simple)
            self._object_steps[state, key_class] = known
        return known

    def next_item(self, residues: Residues) -> Split:
        """The goals that the next item may meet, by what each leaves; none where no item may come."""
        known = self._array_steps.get(residues)
        if known is None:
            known = self._search.run(self.arrays.step(residues))
            self._array_steps[residues] = known
        return known

    def _key_classes(self, key_sets: tuple[Keys, ...], order: tuple[str, ...]) -> KeyClasses:
        known = self._classes.get((key_sets, order))
        if known is None:
            known = self._classes[key_sets, order] = KeyClasses(
                self.languages, order, key_sets, in_order=self._in_order
            )
        return known

    def _opened(self, formulas: Residues, order: tuple[str, ...]) -> ObjectState:
        known = self._openings.get((formulas, order))
        if known is None:
            key_sets = tuple(dict.fromkeys(keys for formula in formulas for keys in self.objects.key_sets(formula)))
            known = self.objects.opened(self._key_classes(key_sets, order), formulas)
            self._openings[formulas, order] = known
        return known

    def _answer(self, question: Question) -> Answering[bool]:
        match question:
            case ("goal", int(goal)):
                return self._possible(goal)
            case ("array", int(residue)):
                return self.arrays.can_end(residue)
            case ("object", ObjectState() as state):
                return self.objects.can_end(state)
        raise AssertionError(question)

    def _possible(self, goal: int) -> Answering[bool]:
        shape = self.shape(goal)
        if shape.null or shape.booleans or self._is_scalar_possible(shape):
            return True
        if shape.array and (yield ("array", self._without_repeats(shape.array))):
            return True
        if not shape.object or self.objects.is_empty_allowed(shape.object):
            return shape.object != FALSE
        state = self._opened((shape.object,), shape.order)
        return state.residues != (FALSE,) and (yield ("object", state))

    def _is_scalar_possible(self, shape: Shape) -> bool:
        if TRUE in (shape.string, shape.number):
            return True
        return not (self.languages.is_empty_number(shape.number) and self.languages.is_empty(shape.string))

    def _without_repeats(self, formula: int) -> int:
        """An array formula without `UniqueItems`, for arrays in which repeats are kept out by the sample."""
        if not self.arrays.is_unique(formula):
            return formula
        known = self._unique.get(formula)
        if known is None:
            canonical = TRUE if self._is_canonical(formula) else self.goals.atom(Canonical(UNIQUE_LEVELS))
            # An item may hold such an array itself: there, while this one is worked out, one item at most.
            self._unique[formula] = self.arrays.without_repeats(formula, canonical, lambda _: 1)
            counting = Counting(self, Search(self._answer))
            known = self._unique[formula] = self.arrays.without_repeats(formula, canonical, counting.of_goal)
        return known

    def _is_canonical(self, formula: int) -> bool:
        """Whether the items are inside of an item of an array without repeats already."""
        for part in self.arrays.formulas.conjuncts(formula):
            atom, positive = self.arrays.formulas.literal(part) or (None, False)
            if positive and isinstance(atom, EveryItem):
                leaves = [leaf for leaf, _ in self.goals.atoms(atom.goal)]
                if any(isinstance(leaf, Canonical) for leaf in leaves):
                    return True
        return False

    def opened_object(self, formula: int, order: tuple[str, ...]) -> ObjectState:
        """The state after ``{``, whether or not it can be completed."""
        return self._opened((formula,), order)

    def opened_array(self, formula: int) -> Residues:
        """The residues after ``[``, whether or not they can be completed."""
        return (self._without_repeats(formula),)

    def _literal_shape(self, leaf: Leaf, is_positive: bool) -> Shape:
        shape = self.leaf_shape(leaf)
        return shape if is_positive else self.shapes.negate(shape)

    def _joined_shape(self, is_conjunction: bool, parts: list[Shape]) -> Shape:
        return self.shapes.all_of(parts) if is_conjunction else self.shapes.any_of(parts)

    def _canonical_shape(self, levels: int) -> Shape:
        string, number = self.languages.canonical()
        if not levels:
            return Shape(string=string, number=number, array=FALSE, object=FALSE)
        inner = self.goals.atom(Canonical(levels - 1))
        named = self.objects.every(Unnamed(), FALSE)
        every = self.objects.every(KeySet(frozenset(), negated=True), inner)
        return Shape(
            string=string,
            number=number,
            array=self.arrays.every(0, UNBOUNDED, inner),
            object=self.objects.formulas.all_of((named, every)),
        )

    def _constant_shape(self, value: Constant) -> Shape:
        parts = {"null": False, "booleans": 0, "number": FALSE, "string": FALSE, "array": FALSE, "object": FALSE}
        match value:
            case None:
                parts["null"] = True
            case bool():
                parts["booleans"] = 2 if value else 1
            case str():
                parts["string"] = self.languages.words((value,))
            case Number():
                parts["number"] = self.languages.equals(value.value)
            case Array(items):
                parts["array"] = self._constant_array(items)
            case Object(members, order):
                parts["object"] = self._constant_object(dict(members))
                return Shape(**parts, order=order)  # type: ignore[arg-type]
        return Shape(**parts)  # type: ignore[arg-type]

    def _constant_array(self, items: tuple[Constant, ...]) -> int:
        parts = [self.arrays.at_least(TRUE, len(items)), self.arrays.every(len(items), UNBOUNDED, FALSE)]
        parts += [self.arrays.every(i, i + 1, self.goals.atom(Equal(item))) for i, item in enumerate(items)]
        return self.arrays.formulas.all_of(parts)

    def _constant_object(self, members: dict[str, Constant]) -> int:
        objects = self.objects
        parts = [objects.every(KeySet(frozenset(members), negated=True), FALSE)]
        for name, member in members.items():
            parts.append(objects.has(name))
            parts.append(objects.every(KeySet(frozenset((name,))), self.goals.atom(Equal(member))))
        return objects.formulas.all_of(parts)


def _ask(question: Question) -> Answering[bool]:
    return (yield question)
