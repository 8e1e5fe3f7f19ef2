"""How a text that nests very deeply is brought to an end: from some depth on its states are replaced by *shallow* ones,
whose values nest `LEVELS` deeper at most.

What stays possible is told by the same derivatives as everything else, of formulas that ask for so few levels as well.
Invariant: the shallow twin of a state is live, and so is every state after it.
"""

from __future__ import annotations

from collections.abc import Iterator

from grammars.json_schema.atoms import UNBOUNDED, AtLeastItems, EveryItem, EveryMember, KeySet
from grammars.json_schema.boolean import TRUE
from grammars.json_schema.layouts import Layout, ObjectState
from grammars.json_schema.leaves import Anything, Canonical
from grammars.json_schema.names import Name
from grammars.json_schema.values import Values

LEVELS = 128
"""Most levels that a value nests from where its text became too deep."""
ALL_ITEMS = (0, UNBOUNDED)
EVERY_KEY = KeySet(frozenset(), negated=True)


class Shallow:
    """Twins of named states."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._few = values.goals.atom(Anything(LEVELS))
        self._few_items = values.arrays.every(*ALL_ITEMS, self._few)
        self._few_members = values.objects.every(EVERY_KEY, self._few)
        self._layouts: dict[Layout, Layout] = {}

    def goal(self, goal: int) -> int:
        """``goal`` of values that nest no deeper than `LEVELS`."""
        leaves = [self._values.goals.literal(part) for part in self._values.goals.conjuncts(goal)]
        if any(leaf is not None and leaf[1] and isinstance(leaf[0], Anything | Canonical) for leaf in leaves):
            return goal
        return self._values.goals.all_of((goal, self._few))

    def state(self, name: Name) -> Name | None:
        """The name of a state's shallow twin: itself where nothing nests after it, None where nothing shallow does."""
        match name:
            case ("gapped" | "space" as kind, inner):
                twin = self.state(inner)
                return None if twin is None else (kind, twin)
            case ("value", goals):
                goals = tuple(self.goal(goal) for goal in goals)
                return ("value", goals) if any(map(self._values.is_possible, goals)) else None
            case ("array_open" | "after_item" | "item" as kind, residues, is_unique):
                residues = self._values.live_items(tuple(map(self._items, residues)))
                return (kind, residues, is_unique) if any(residues) else None
            case ("object", formulas, order):
                formulas = tuple(map(self._members, formulas))
                return None if self._values.open_object(formulas, order) is None else ("object", formulas, order)
            case ("after_member" | "next_key" | "colon" | "member" as kind, ObjectState() as members, *key_class):
                members = self._values.live_members(self._object(members))
                return (kind, members, *key_class) if any(members.residues) else None
        return name

    def _items(self, residue: int) -> int:
        formulas = self._values.arrays.formulas
        asked = [formulas.literal(part) for part in formulas.conjuncts(residue)]
        every = [literal[0] for literal in asked if literal is not None and literal[1]]
        goals = [
            atom.goal for atom in every if isinstance(atom, EveryItem) and atom.begin == 0 and atom.end == UNBOUNDED
        ]
        return residue if self._is_any_shallow(goals) else formulas.all_of((residue, self._few_items))

    def _members(self, formula: int) -> int:
        formulas = self._values.objects.formulas
        asked = [formulas.literal(part) for part in formulas.conjuncts(formula)]
        every = [literal[0] for literal in asked if literal is not None and literal[1]]
        goals = [atom.goal for atom in every if isinstance(atom, EveryMember) and atom.keys == EVERY_KEY]
        return formula if self._is_any_shallow(goals) else formulas.all_of((formula, self._few_members))

    def _is_any_shallow(self, goals: list[int]) -> bool:
        return any(self.goal(goal) == goal for goal in goals)

    def _object(self, state: ObjectState) -> ObjectState:
        layout = self._layouts.get(state.layout)
        if layout is None:
            goals = state.layout.goals
            num_classes = state.layout.classes.all.bit_length()
            layout = Layout(state.layout.classes, {i: self.goal(goals.get(i, TRUE)) for i in range(num_classes)})
            self._layouts[state.layout] = self._layouts[layout] = layout
        return layout.state(state.remaining, state.needed, state.residues)


def too_deep(values: Values, goal: int) -> int | None:
    """A goal that ``goal`` asks of itself or of anything inside, and that only values with more than `LEVELS` levels
    meet.

    None as well where the schema's own depth bounds its texts.
    """
    inner = _inner_goals(values, goal)
    if _is_shallow(inner, goal):
        return None
    shallow = Shallow(values)
    for asked in inner:
        if values.is_met_flatly(asked):
            continue
        if values.is_possible(asked) and not values.is_possible(shallow.goal(asked)):
            return asked
    return None


def inner_goals(values: Values, goal: int) -> list[int]:
    """What a goal asks of the members and items of a value."""
    shape = values.shape(goal)
    members = [atom.goal for atom, _ in values.objects.formulas.atoms(shape.object) if isinstance(atom, EveryMember)]
    items = [atom for atom, _ in values.arrays.formulas.atoms(shape.array)]
    return [*members, *(atom.goal for atom in items if isinstance(atom, EveryItem | AtLeastItems))]


def _inner_goals(values: Values, goal: int) -> dict[int, list[int]]:
    """`inner_goals` of a goal and of all that are asked inside, each after those that lead to it first."""
    found: dict[int, list[int]] = {}
    pending = [goal]
    while pending:
        current = pending.pop()
        if current not in found:
            found[current] = list(dict.fromkeys(inner_goals(values, current)))
            pending += found[current]
    return found


def _is_shallow(inner: dict[int, list[int]], goal: int) -> bool:
    """Whether no chain of goals, each asked inside the one before, is longer than `LEVELS`."""
    depths: dict[int, int] = {}
    path: list[tuple[int, Iterator[int]]] = [(goal, iter(inner[goal]))]
    open_: set[int] = {goal}
    while path:
        current, rest = path[-1]
        for part in rest:
            if part in open_ or len(path) > LEVELS:
                return False
            if part not in depths:
                path.append((part, iter(inner[part])))
                open_.add(part)
                break
        else:
            path.pop()
            open_.discard(current)
            depths[current] = 1 + max((depths[part] for part in inner[current]), default=0)
    return depths[goal] <= LEVELS
