"""JSON text of the values that meet a goal, as a source of states for `grammars.matching`.

States are named by tuples, so that equal situations are one state. The stack holds, for each open array or object,
what to do when the child, or the key, is read. Goals of one child exclude each other; which of them it meets is its
*outcome*.

    text     {  "  a  "  :  1           ,  ...  }
    state    value ─ object_open ─ key ─ colon ─ member ─(child)─ after_member ─ next_key

Invariant: a state's row leads only to states from which the text can be completed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from grammars.constraint import Whitespace
from grammars.json_schema.boolean import TRUE
from grammars.json_schema.gaps import AFTER_RETURN, GAP
from grammars.json_schema.key_trie import FORBIDDEN, KeyTrie
from grammars.json_schema.keys import KeyClasses
from grammars.json_schema.leaves import Anything
from grammars.json_schema.objects import ObjectState
from grammars.json_schema.outcomes import Residues
from grammars.json_schema.scalars import ScalarStates
from grammars.json_schema.shapes import merged_order
from grammars.json_schema.values import Values
from grammars.matching.tables import NO_OUTCOME, Tables

OPEN_LEVELS = 64
"""How deeply a value nests where the schema asks nothing of it."""

Name = tuple[Any, ...]
"""What kind of state or handler it is, and of what."""

_QUOTE, _COMMA, _COLON, _SPACE = b'",: '
_CLOSE_ARRAY, _CLOSE_OBJECT = b"]}"


class JsonSource:
    """States of JSON texts for one goal."""

    def __init__(self, values: Values, goal: int, whitespace: Whitespace) -> None:
        self._values = values
        self._goal = goal
        self._open_goal = values.goals.atom(Anything(OPEN_LEVELS))
        self._whitespace = whitespace
        self._names: list[Name] = [()]
        self._ids: dict[Name, int] = {}
        self._handler_names: list[Name] = [()]
        self._handler_ids: dict[Name, int] = {}
        self._allowed: dict[ObjectState, tuple[int, ...]] = {}
        self._key_tries: dict[tuple[KeyClasses, tuple[int, ...]], KeyTrie] = {}
        self._scalars = ScalarStates(values.languages)

    def start(self, tables: Tables) -> tuple[int, int]:
        """The state before the text."""
        return self._state(tables, ("value", (self._goal,))), self._handler(tables, ("root",), 1)

    def expand(self, tables: Tables, state: int) -> None:
        """Build one row."""
        kind, *arguments = self._names[state]
        getattr(self, f"_expand_{kind}")(tables, state, *arguments)

    def resolve(self, tables: Tables, handler: int, outcome: int) -> int:
        """The state after a child or key."""
        match self._handler_names[handler]:
            case ("root",):
                return self._state(tables, ("done",))
            case ("gap", name):
                return self._state(tables, name)
            case ("key", state):
                return self._gapped(tables, ("colon", state, outcome))
            case ("member", state, key_class):
                successor = self._values.after_key(state, key_class)[outcome]
                return self._gapped(tables, ("after_member", successor.state))
            case ("item", residues):
                rest = tuple(self._values.next_item(residues))[outcome]
                return self._gapped(tables, ("after_item", rest))
        raise AssertionError(self._handler_names[handler])

    def _expand_done(self, tables: Tables, state: int) -> None:
        tables.set_row(state, (), final=0)

    def _expand_value(self, tables: Tables, state: int, goals: tuple[int, ...]) -> None:
        tables.set_row(state, self._value_row(tables, goals))

    def _expand_word(self, tables: Tables, state: int, rest: bytes, outcome: int) -> None:
        code = self._state(tables, ("word", rest[1:], outcome)) if len(rest) > 1 else tables.exit(outcome)
        tables.set_row(state, [(rest[0], code)])

    def _expand_scalar(self, tables: Tables, state: int, index: int, inner: int) -> None:
        row, final = self._scalars.row(tables, self._state, index, inner)
        tables.set_dense_row(state, row, final)

    def _expand_space(self, tables: Tables, state: int, then: Name) -> None:
        tables.set_row(state, [(_SPACE, self._state(tables, then))])

    def _expand_gapped(self, tables: Tables, state: int, then: Name) -> None:
        inner = self._state(tables, then)
        if not tables.expanded[inner]:
            self.expand(tables, inner)
        row = tables.rows[inner].copy()
        handler = self._handler(tables, ("gap", then), 1)
        for byte, position in GAP[0].items():
            row[byte] = tables.push(handler, self._state(tables, ("gap", position)))
        tables.set_dense_row(state, row)

    def _expand_gap(self, tables: Tables, state: int, position: int) -> None:
        moves = [(byte, self._state(tables, ("gap", after))) for byte, after in GAP[position].items()]
        tables.set_row(state, moves, final=NO_OUTCOME if position == AFTER_RETURN else 0)

    def _expand_array_open(self, tables: Tables, state: int, residues: Residues) -> None:
        row = self._item_row(tables, residues)
        outcome = self._values.arrays.closing(residues)
        if outcome is not None:
            row.append((_CLOSE_ARRAY, tables.exit(outcome)))
        tables.set_row(state, row)

    def _expand_after_item(self, tables: Tables, state: int, residues: Residues) -> None:
        row = []
        outcome = self._values.arrays.closing(residues)
        if outcome is not None:
            row.append((_CLOSE_ARRAY, tables.exit(outcome)))
        if self._values.next_item(residues):
            row.append((_COMMA, self._separated(tables, ("item", residues))))
        tables.set_row(state, row)

    def _expand_item(self, tables: Tables, state: int, residues: Residues) -> None:
        tables.set_row(state, self._item_row(tables, residues))

    def _expand_object_open(self, tables: Tables, state: int, members: ObjectState) -> None:
        row = self._key_row(tables, members)
        outcome = self._values.objects.closing(members)
        if outcome is not None:
            row.append((_CLOSE_OBJECT, tables.exit(outcome)))
        tables.set_row(state, row)

    def _expand_after_member(self, tables: Tables, state: int, members: ObjectState) -> None:
        row = []
        outcome = self._values.objects.closing(members)
        if outcome is not None:
            row.append((_CLOSE_OBJECT, tables.exit(outcome)))
        if self._allowed_keys(members):
            row.append((_COMMA, self._separated(tables, ("next_key", members))))
        tables.set_row(state, row)

    def _expand_next_key(self, tables: Tables, state: int, members: ObjectState) -> None:
        tables.set_row(state, self._key_row(tables, members))

    def _expand_key(self, tables: Tables, state: int, trie: KeyTrie, node: int, rest: int) -> None:
        row = np.zeros(256, dtype=np.int32)
        others: dict[int, int] = {}
        if rest:
            row, _ = self._scalars.row(tables, self._state, trie.rest, rest)
            others = self._scalars.targets(trie.rest, rest)
        for byte, child in trie.children[node].items():
            other = others.get(byte, 0)
            if other or trie.is_open[child]:
                row[byte] = self._state(tables, ("key", trie, child, other))
        named = trie.classes[node]
        if named is not None:
            row[_QUOTE] = 0 if named == FORBIDDEN else tables.exit(named)
        tables.set_dense_row(state, row)

    def _expand_colon(self, tables: Tables, state: int, members: ObjectState, key_class: int) -> None:
        tables.set_row(state, [(_COLON, self._separated(tables, ("member", members, key_class)))])

    def _expand_member(self, tables: Tables, state: int, members: ObjectState, key_class: int) -> None:
        goals = tuple(successor.goal for successor in self._values.after_key(members, key_class))
        handler = self._handler(tables, ("member", members, key_class), len(goals))
        tables.set_row(state, self._pushed(tables, handler, self._value_row(tables, goals)))

    def _item_row(self, tables: Tables, residues: Residues) -> list[tuple[int, int]]:
        goals = tuple(self._values.next_item(residues).values())
        if not goals:
            return []
        handler = self._handler(tables, ("item", residues), len(goals))
        return self._pushed(tables, handler, self._value_row(tables, goals))

    def _key_row(self, tables: Tables, members: ObjectState) -> list[tuple[int, int]]:
        allowed = self._allowed_keys(members)
        if not allowed:
            return []
        classes = members.layout.classes
        others = len(classes.rest)
        handler = self._handler(tables, ("key", members), others + len(classes.names), others)
        trie = self._key_trie(members, allowed)
        return [(_QUOTE, tables.push(handler, self._state(tables, ("key", trie, 0, trie.start))))]

    def _value_row(self, tables: Tables, goals: tuple[int, ...]) -> list[tuple[int, int]]:
        goals = tuple(self._open_goal if goal == TRUE else goal for goal in goals)
        shapes = [self._values.shape(goal) for goal in goals]
        row: list[tuple[int, int]] = []
        for outcome, shape in enumerate(shapes):
            if shape.null:
                row.append((b"n"[0], self._state(tables, ("word", b"ull", outcome))))
            if shape.booleans & 1:
                row.append((b"f"[0], self._state(tables, ("word", b"alse", outcome))))
            if shape.booleans & 2:
                row.append((b"t"[0], self._state(tables, ("word", b"rue", outcome))))
        row += self._scalars.strings(tables, self._state, tuple(shape.string for shape in shapes))
        row += self._scalars.numbers(tables, self._state, tuple(shape.number for shape in shapes))
        if any(shape.array for shape in shapes):
            residues = self._values.open_array(tuple(shape.array for shape in shapes))
            if residues is not None:
                row.append((b"["[0], self._gapped(tables, ("array_open", residues))))
        if any(shape.object for shape in shapes):
            members = self._values.open_object(tuple(shape.object for shape in shapes), merged_order(shapes))
            if members is not None:
                row.append((b"{"[0], self._gapped(tables, ("object_open", members))))
        return row

    def _pushed(self, tables: Tables, handler: int, row: list[tuple[int, int]]) -> list[tuple[int, int]]:
        return [(byte, tables.push(handler, target)) for byte, target in row]

    def _allowed_keys(self, members: ObjectState) -> tuple[int, ...]:
        allowed = self._allowed.get(members)
        if allowed is None:
            coming = members.layout.classes.coming(members.remaining)
            allowed = tuple(key_class for key_class in coming if self._values.after_key(members, key_class))
            self._allowed[members] = allowed
        return allowed

    def _key_trie(self, members: ObjectState, allowed: tuple[int, ...]) -> KeyTrie:
        key = (members.layout.classes, allowed)
        trie = self._key_tries.get(key)
        if trie is None:
            trie = self._key_tries[key] = KeyTrie(self._scalars, members.layout.classes, allowed)
        return trie

    def _separated(self, tables: Tables, then: Name) -> int:
        """What follows a comma or a colon."""
        if self._whitespace is Whitespace.SPACED:
            return self._state(tables, ("space", then))
        return self._gapped(tables, then)

    def _gapped(self, tables: Tables, then: Name) -> int:
        """White space by choice, then the rest."""
        if self._whitespace is Whitespace.FLEXIBLE:
            return self._state(tables, ("gapped", then))
        return self._state(tables, then)

    def _state(self, tables: Tables, name: Name) -> int:
        state = self._ids.get(name)
        if state is None:
            state = self._ids[name] = tables.add_state()
            self._names.append(name)
        return state

    def _handler(self, tables: Tables, name: Name, num_outcomes: int, num_remembered: int = 0) -> int:
        handler = self._handler_ids.get(name)
        if handler is None:
            handler = self._handler_ids[name] = tables.add_handler(num_outcomes, num_remembered)
            self._handler_names.append(name)
        return handler
