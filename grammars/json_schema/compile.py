"""JSON Schema in, compiled constraint out.

Invariant: a schema that compiles has at least one valid text, and every keyword it reaches is enforced or reported.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from decoding.errors import ConstraintError, UnsupportedConstraintError
from grammars.constraint import PropertyOrder, Whitespace
from grammars.json_schema.atoms import AtLeastItems, EveryItem, EveryMember
from grammars.json_schema.boolean import FALSE
from grammars.json_schema.document import FIELD, Document, Schema
from grammars.json_schema.leaves import Place
from grammars.json_schema.shallow import LEVELS, inner_goals, too_deep
from grammars.json_schema.source import JsonSource
from grammars.json_schema.translate import Translator
from grammars.json_schema.values import Values
from grammars.limits import ConstraintLimits
from grammars.matching.constraint import CompiledConstraint
from grammars.regular.charset import ANY, CharSet

JSON_CHARACTERS = "".join(sorted({*'{}[]:," +-.eE0123456789abcdefABCDEF/\\bfnrtu', *"truefalsenull"}))
"""What JSON texts are made of beside the characters of strings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonOptions:
    """How JSON texts are generated.

    Attributes:
        whitespace: between JSON tokens.
        property_order: of the keys of an object.
        assert_formats: texts are of the `format` that is asked for; else formats are notes for the reader.
        integral_floats: integers may also be spelled 1.0, which they are in JSON Schema from draft 6 on, but which many
            parsers read as a float.
        best_effort: report keywords that cannot be enforced, instead of refusing the schema.
        characters: those that a text may have raw; others are escaped.
        limits: how large a schema may be.
    """

    whitespace: Whitespace = Whitespace.COMPACT
    property_order: PropertyOrder = PropertyOrder.SCHEMA
    assert_formats: bool = True
    integral_floats: bool = False
    best_effort: bool = False
    characters: CharSet = ANY
    limits: ConstraintLimits = field(default_factory=ConstraintLimits)


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonLanguage:
    """JSON texts of values that meet a goal."""

    values: Values
    goal: int
    whitespace: Whitespace

    def source(self) -> JsonSource:
        """A fresh source of states."""
        self.values.forget()
        return JsonSource(self.values, self.goal, self.whitespace)


def compile_json_schema(schema: str | Schema, options: JsonOptions) -> CompiledConstraint:
    """Compile a schema, as JSON text or parsed.

    Raises ConstraintError where it is no schema, too large or impossible, and UnsupportedConstraintError where a
    keyword cannot be enforced.
    """
    _check_characters(options.characters)
    document = Document(schema, options.limits)
    translator = Translator(document, best_effort=options.best_effort, assert_formats=options.assert_formats)
    zeros = int(options.integral_floats and document.dialect.integral_floats)
    values = Values(
        translator,
        in_order=options.property_order is PropertyOrder.SCHEMA,
        zeros=zeros,
        characters=options.characters,
    )
    goal = values.goals.atom(Place("", document.entered((), "")))
    _translate_all(values, goal)
    if not values.is_possible(goal):
        _refuse_repeats(values, goal)
        raise ConstraintError(FIELD, "is impossible: no JSON value is valid under it", _impossible_part(values, goal))
    deep = too_deep(values, goal)
    if deep is not None:
        raise UnsupportedConstraintError(
            FIELD, f"is met by values with more than {LEVELS} levels of nesting alone", _place(values, deep)
        )
    text = json.dumps(document.root, default=str)
    flags = f"{options.assert_formats} {options.integral_floats} {options.best_effort}"
    characters = str(options.characters.bounds)
    parts = ("json_schema", options.whitespace.value, options.property_order.value, flags, characters, text)
    return CompiledConstraint(
        text_key=hashlib.sha256("\n".join(parts).encode()).hexdigest(),
        language=JsonLanguage(values=values, goal=goal, whitespace=options.whitespace),
        enforced=translator.enforced,
        unenforced=tuple(translator.unenforced.values()),
    )


def compile_json_object(options: JsonOptions) -> CompiledConstraint:
    """Any JSON object that nests at most `source.OPEN_LEVELS` deep."""
    return compile_json_schema({"type": "object"}, options)


def _check_characters(characters: CharSet) -> None:
    """Every string can be written with escapes; so nothing is lost as long as JSON's own characters are there."""
    if missing := [character for character in JSON_CHARACTERS if ord(character) not in characters]:
        raise ConstraintError(FIELD, f"cannot be met: the model's vocabulary has no token for {missing[0]!r}")


def _translate_all(values: Values, goal: int) -> None:
    """Translate every schema that can be reached, so that errors show now."""
    for current in _reached(values, goal):
        _check(values, current)


def _reached(values: Values, goal: int) -> Iterator[int]:
    """The goals that a goal asks of values, of their members and items, and so on."""
    seen: set[int] = set()
    pending = [goal]
    while pending:
        current = pending.pop()
        if current in seen:
            continue
        seen.add(current)
        yield current
        pending += inner_goals(values, current)


def _refuse_repeats(values: Values, goal: int) -> None:
    """Blame what cannot be enforced, where an impossible schema has it inside.

    Raises UnsupportedConstraintError.
    """
    for current in _reached(values, goal):
        for asked in (current, values.goals.negate(current)):
            if values.arrays.wants_repeats(values.shape(asked).array):
                raise UnsupportedConstraintError(
                    FIELD, "asks for arrays in which items repeat, which cannot be enforced", _place(values, current)
                )


def _check(values: Values, goal: int) -> None:
    """Find out now what would otherwise show in the middle of a text: languages and keys that are too much work."""
    try:
        values.prepare(goal)
    except ConstraintError as error:
        if error.field == FIELD and error.pointer:
            raise
        raise type(error)(FIELD, error.bare_message, _place(values, goal)) from error


def _place(values: Values, goal: int) -> str:
    """The pointer of the first schema that a goal names."""
    return next((leaf.pointer for leaf, _ in values.goals.atoms(goal) if isinstance(leaf, Place)), "")


def _impossible_part(values: Values, goal: int) -> str:
    """The pointer of an impossible schema as deep inside as can be: it asks for what none of its own parts forbids."""
    seen = {goal}
    while True:
        shape = values.shape(goal)
        members = [atom for atom, _ in values.objects.formulas.atoms(shape.object)]
        items = [atom for atom, positive in values.arrays.formulas.atoms(shape.array) if positive]
        inner = [atom.goal for atom in members if isinstance(atom, EveryMember)]
        inner += [atom.goal for atom in items if isinstance(atom, EveryItem | AtLeastItems)]
        deeper = [part for part in inner if part not in seen and part != FALSE and not values.is_possible(part)]
        if not deeper:
            break
        goal = deeper[0]
        seen.add(goal)
    return _place(values, goal)
