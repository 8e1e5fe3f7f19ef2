"""JSON text of the values that meet a goal, as a source of states for `grammars.matching`.

States are named by tuples, so that equal situations are one state. The stack holds, for each open array or object,
what to do when the child, or the key, is read. Goals of one child exclude each other; which of them it meets is its
*outcome*.

    text     {  "  a  "  :  1           ,  ...  }
    state    value ─ object ─ key ─ colon ─ member ─(child)─ after_member ─ next_key

Invariant: a state's row leads only to states from which the text can be completed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from decoding.errors import GrammarStateError
from grammars.constraint import Whitespace
from grammars.json_schema.boolean import TRUE
from grammars.json_schema.fixed import Kind
from grammars.json_schema.keys import KeyClasses, bits
from grammars.json_schema.layouts import ObjectState, Successor
from grammars.json_schema.leaves import OPEN_LEVELS, Anything
from grammars.json_schema.names import Name, Names
from grammars.json_schema.outcomes import Residues
from grammars.json_schema.scalars import Row, ScalarStates
from grammars.json_schema.shallow import Shallow
from grammars.json_schema.shapes import Shape, merged_order
from grammars.json_schema.values import Values
from grammars.matching.tables import NOTHING_REMEMBERED, Remembering, Tables

_QUOTE, _COMMA, _COLON, _SPACE = b'",: '
_CLOSE_ARRAY, _CLOSE_OBJECT = b"]}"
_SPACE_ONLY = Remembering(is_space=True)


class JsonSource:
    """States of JSON texts for one goal."""

    def __init__(self, values: Values, goal: int, whitespace: Whitespace) -> None:
        self._values = values
        self._goal = goal
        self._open_goal = values.goals.atom(Anything(OPEN_LEVELS))
        self._whitespace = whitespace
        self._key_starts: dict[tuple[KeyClasses, int], int] = {}
        self._before_values: dict[tuple[int, tuple[Successor, ...]], ObjectState] = {}
        self._value_rows: dict[tuple[int, ...], Row] = {}
        self._shallow = Shallow(values)

    def start(self, tables: Tables) -> tuple[int, int]:
        """The state before the text."""
        self._tables = tables
        self.names = Names(tables, self._values.languages.characters)
        self._scalars = ScalarStates(self._values.languages, self.names)
        self._gap_row = self._scalars.fixed_row(Kind.GAP, 0) if self._whitespace is Whitespace.FLEXIBLE else []
        self._gap_bytes = np.array([byte for byte, _ in self._gap_row], dtype=np.intp)
        self._gap_targets = tuple(dict.fromkeys(target for _, target in self._gap_row))
        self._gap_places = np.array([self._gap_targets.index(target) for _, target in self._gap_row], dtype=np.int32)
        tables.hint_of = self._scalars.hint
        tables.least_of = self._scalars.least
        tables.shallow_of = self.shallow
        return self.names.state(("value", (self._goal,))), self.names.handler(("root",), 1)

    def expand(self, tables: Tables, state: int) -> None:
        """Build one row."""
        assert tables is self._tables
        kind, *arguments = self.names.state_name(state)
        getattr(self, f"_expand_{kind}")(state, *arguments)

    def resolve(self, tables: Tables, handler: int, outcome: int) -> int:
        """The state after a child or key."""
        assert tables is self._tables
        match self.names.handler_name(handler):
            case ("root",):
                return self.names.state(("done",))
            case ("gap", int(inner)):
                return inner
            case ("key", state):
                return self._gapped(("colon", self._before_value(state, outcome), outcome))
            case ("member", state, key_class):
                successor = self._values.after_key(state, key_class)[outcome]
                return self._gapped(("after_member", successor.state))
            case ("item", residues, is_unique):
                rest = tuple(self._values.next_item(residues))[outcome]
                return self._gapped(("after_item", rest, is_unique))
        raise AssertionError(self.names.handler_name(handler))

    def shallow(self, state: int) -> int:
        """The state that stands for ``state`` where the text nests too deeply; see `shallow.Shallow`.

        Raises GrammarStateError where the text can only be completed by nesting much deeper.
        """
        twin = self._shallow.state(self.names.state_name(state))
        if twin is None:
            raise GrammarStateError("the text nests too deeply to be completed")
        return self.names.state(twin) if twin is not self.names.state_name(state) else state

    def _expand_done(self, state: int) -> None:
        self._tables.set_row(state, (), final=0)

    def _expand_value(self, state: int, goals: tuple[int, ...]) -> None:
        self._tables.set_row(state, self._value_row(goals))

    def _expand_word(self, state: int, rest: bytes, outcome: int) -> None:
        code = self.names.state(("word", rest[1:], outcome)) if len(rest) > 1 else self._tables.exit(outcome)
        self._tables.set_row(state, [(rest[0], code)])

    def _expand_scalar(self, state: int, index: int, inner: int) -> None:
        self._scalars.expand(state, index, inner)

    def _expand_counted(self, state: int, *where: Any) -> None:
        self._scalars.expand_counted(state, *where)

    def _expand_words(self, state: int, *where: Any) -> None:
        self._scalars.expand_words(state, *where)

    def _expand_space(self, state: int, then: Name) -> None:
        self._tables.set_row(state, [(_SPACE, self.names.state(then))])

    def _expand_gapped(self, state: int, then: Name) -> None:
        inner = self.names.state(then)
        if not self._tables.is_built(inner):
            self.expand(self._tables, inner)
        row = self._tables.rows[inner].copy()
        handler = self.names.handler(("gap", inner), 1, _SPACE_ONLY)
        row[self._gap_bytes] = self._tables.push_each(handler, self._gap_targets) - self._gap_places
        self._tables.set_dense_row(state, row)

    def _expand_array_open(self, state: int, residues: Residues, is_unique: bool) -> None:
        row = self._item_row(residues, is_unique)
        outcome = self._values.arrays.closing(residues)
        if outcome is not None:
            row.append((_CLOSE_ARRAY, self._tables.exit(outcome)))
        self._tables.set_row(state, row)

    def _expand_after_item(self, state: int, residues: Residues, is_unique: bool) -> None:
        row = []
        outcome = self._values.arrays.closing(residues)
        if outcome is not None:
            row.append((_CLOSE_ARRAY, self._tables.exit(outcome)))
        if self._values.next_item(residues):
            row.append((_COMMA, self._separated(("item", residues, is_unique))))
        self._tables.set_row(state, row)

    def _expand_item(self, state: int, residues: Residues, is_unique: bool) -> None:
        self._tables.set_row(state, self._item_row(residues, is_unique))

    def _expand_object(self, state: int, formulas: Residues, order: tuple[str, ...]) -> None:
        members = self._values.open_object(formulas, order)
        assert members is not None
        row = self._key_row(members)
        outcome = self._values.objects.closing(members)
        if outcome is not None:
            row.append((_CLOSE_OBJECT, self._tables.exit(outcome)))
        self._tables.set_row(state, row)

    def _expand_after_member(self, state: int, members: ObjectState) -> None:
        row = []
        outcome = self._values.objects.closing(members)
        if outcome is not None:
            row.append((_CLOSE_OBJECT, self._tables.exit(outcome)))
        if self._values.next_keys(members):
            row.append((_COMMA, self._separated(("next_key", members))))
        self._tables.set_row(state, row)

    def _expand_next_key(self, state: int, members: ObjectState) -> None:
        self._tables.set_row(state, self._key_row(members))

    def _expand_colon(self, state: int, members: ObjectState, key_class: int) -> None:
        self._tables.set_row(state, [(_COLON, self._separated(("member", members, key_class)))])

    def _expand_member(self, state: int, members: ObjectState, key_class: int) -> None:
        goals = tuple(successor.goal for successor in self._values.after_key(members, key_class))
        handler = self.names.handler(("member", members, key_class), len(goals))
        self._tables.set_row(state, self._pushed(handler, self._value_row(goals)))

    def _item_row(self, residues: Residues, is_unique: bool) -> Row:
        goals = tuple(self._values.next_item(residues).values())
        if not goals:
            return []
        remembering = Remembering(outcomes=len(goals), is_value=True) if is_unique else NOTHING_REMEMBERED
        handler = self.names.handler(("item", residues, is_unique), len(goals), remembering)
        return self._pushed(handler, self._value_row(goals))

    def _key_row(self, members: ObjectState) -> Row:
        coming = self._values.next_keys(members)
        if not coming:
            return []
        classes = members.layout.classes
        others = len(classes.rest)
        remembering = Remembering(outcomes=others, closing=b'"' if classes.is_endless else None)
        handler = self.names.handler(("key", members), others + len(classes.names), remembering)
        return [(_QUOTE, self._tables.push(handler, self._key_start(classes, coming)))]

    def _value_row(self, goals: tuple[int, ...]) -> Row:
        """The codes of the first byte of a value that meets one of ``goals``, each going to a state of its own."""
        row = self._value_rows.get(goals)
        if row is None:
            row = self._value_rows[goals] = self._new_value_row(goals)
        return row

    def _new_value_row(self, goals: tuple[int, ...]) -> Row:
        goals = tuple(self._open_goal if goal == TRUE else goal for goal in goals)
        shapes = [self._values.shape(goal) for goal in goals]
        row: Row = []
        for outcome, shape in enumerate(shapes):
            if shape.null:
                row.append((b"n"[0], self.names.state(("word", b"ull", outcome))))
            if shape.booleans & 1:
                row.append((b"f"[0], self.names.state(("word", b"alse", outcome))))
            if shape.booleans & 2:
                row.append((b"t"[0], self.names.state(("word", b"rue", outcome))))
        row += self._scalars.strings(tuple(shape.string for shape in shapes))
        row += self._scalars.numbers(tuple(shape.number for shape in shapes))
        if any(shape.array for shape in shapes):
            formulas = tuple(shape.array for shape in shapes)
            residues = self._values.open_array(formulas)
            if residues is not None:
                is_unique = any(self._values.arrays.is_unique(formula) for formula in formulas)
                row.append((b"["[0], self._gapped(("array_open", residues, is_unique))))
        objects = tuple(shape.object for shape in shapes)
        if self._is_object_possible(objects, shapes):
            row.append((b"{"[0], self._gapped(("object", objects, merged_order(shapes)))))
        return row

    def _is_object_possible(self, formulas: Residues, shapes: list[Shape]) -> bool:
        if len(formulas) == 1:
            return self._values.is_object_possible(formulas[0], shapes[0].order)
        return any(formulas) and self._values.open_object(formulas, merged_order(shapes)) is not None

    def _pushed(self, handler: int, row: Row) -> Row:
        codes = {target: self._tables.push(handler, target) for target in {target for _, target in row}}
        return [(byte, codes[target]) for byte, target in row]

    def _key_start(self, classes: KeyClasses, coming: int) -> int:
        """The state after the opening quote of a key in one of the classes ``coming``.

        A name that must not come is kept as forbidden wherever other keys may come: it would pass for one of them.
        """
        start = self._key_starts.get((classes, coming))
        if start is None:
            others = tuple((key_class, classes.rest[key_class]) for key_class in bits(coming & classes.rest_bits))
            offset = len(classes.rest)
            named = [(key_class - offset, key_class) for key_class in bits(coming & ~classes.rest_bits)]
            words = classes.spelled.with_outcomes(named)
            start = self._key_starts[classes, coming] = self._scalars.keys(words, others)
        return start

    def _before_value(self, state: ObjectState, key_class: int) -> ObjectState:
        """``state``, or one met before after which a key of the class leads to the same: where keys come in order, the
        optional ones that were left out no longer matter.
        """
        return self._before_values.setdefault((key_class, self._values.after_key(state, key_class)), state)

    def _separated(self, then: Name) -> int:
        """What follows a comma or a colon."""
        if self._whitespace is Whitespace.SPACED:
            return self.names.state(("space", then))
        return self._gapped(then)

    def _gapped(self, then: Name) -> int:
        """White space by choice, then the rest."""
        if self._whitespace is Whitespace.FLEXIBLE:
            return self.names.state(("gapped", then))
        return self.names.state(then)
