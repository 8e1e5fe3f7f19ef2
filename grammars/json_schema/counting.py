"""How many different values meet a goal, as far as that matters: arrays without repeats need enough of them.

Invariant: never counts more values than there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from grammars.json_schema.boolean import FALSE, TRUE
from grammars.json_schema.keys import bits
from grammars.json_schema.layouts import ObjectState
from grammars.json_schema.leaves import Equal
from grammars.json_schema.search import Search
from grammars.json_schema.shapes import Shape

if TYPE_CHECKING:
    from grammars.json_schema.values import Values

MAX_COUNTED_VALUES = 256
MAX_STEPS = 8
"""How far along a container is looked for plenty."""


class Counting:
    """Counts with a search of its own, so that what it takes for granted meanwhile is remembered nowhere else."""

    def __init__(self, values: Values, search: Search) -> None:
        self._values = values
        self._search = search
        self._known: dict[int, int | None] = {TRUE: None}

    def of_goal(self, goal: int) -> int | None:
        """The number of values that meet ``goal``, or fewer; None where they are more than `MAX_COUNTED_VALUES`."""
        if goal not in self._known:
            self._known[goal] = 0  # all that is sure of a value that holds such a value itself
            self._known[goal] = self._counted(goal)
        return self._known[goal]

    def _counted(self, goal: int) -> int | None:
        goals = self._values.goals
        parts = goals.disjuncts(goal)
        literals = [goals.literal(part) for part in parts]
        if all(literal is not None and literal[1] and isinstance(literal[0], Equal) for literal in literals):
            return len(parts)
        shape, languages = self._values.shape(goal), self._values.languages
        strings = languages.enumerated(languages.spelling(shape.string)[0], MAX_COUNTED_VALUES)
        numbers = languages.count_numbers(shape.number, MAX_COUNTED_VALUES)
        if strings is None or numbers is None:
            return None
        arrays, objects = self._of_arrays(shape), self._of_objects(shape)
        if arrays is None or objects is None:
            return None
        return shape.null + shape.booleans.bit_count() + len(strings) + numbers + arrays + objects

    def _of_arrays(self, shape: Shape) -> int | None:
        """None for many, else 1 where there is one."""
        if shape.array == FALSE:
            return 0
        arrays = self._values.arrays
        residues = self._search.run(arrays.pruned(self._values.opened_array(shape.array)))
        count = int(any(residues))
        for _ in range(MAX_STEPS):
            found = self._search.run(arrays.step(residues)) if any(residues) else {}
            for rest, goal in found.items():
                if rest == residues or self.of_goal(goal) is None:
                    return None
            residues = next(iter(found), ())
        return count

    def _of_objects(self, shape: Shape) -> int | None:
        """The same."""
        if shape.object == FALSE:
            return 0
        state = self._search.run(self._values.objects.pruned(self._values.opened_object(shape.object, shape.order)))
        return self._along(state) if any(state.residues) else 0

    def _along(self, state: ObjectState) -> int | None:
        objects = self._values.objects
        for _ in range(MAX_STEPS):
            after = None
            for key_class in bits(self._search.run(objects.coming(state))):
                if key_class < len(state.layout.classes.rest):
                    return None
                for successor in self._search.run(objects.step(state, key_class)):
                    if self.of_goal(successor.goal) is None:
                        return None
                    after = after or successor.state
            if after is None:
                break
            state = after
        return 1
