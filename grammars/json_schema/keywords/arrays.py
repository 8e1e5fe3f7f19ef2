"""Keywords about arrays.

Sources: JSON Schema 2020-12 core, section 10.3.1, and validation, section 6.4; draft 7 validation for the older forms.
Invariant: none of them says anything of values that are no arrays.
"""

from __future__ import annotations

from grammars.json_schema.atoms import UNBOUNDED
from grammars.json_schema.boolean import TRUE
from grammars.json_schema.context import Context
from grammars.json_schema.shapes import Shape


def prefix_items(context: Context) -> Shape:
    """The first items are valid under one schema each."""
    return _each_in_turn(context, "prefixItems")


def items(context: Context) -> Shape:
    """All items after the prefix are valid under a schema; or, as a list, the older form of prefixItems."""
    if isinstance(context.schema["items"], list):
        return _each_in_turn(context, "items") if context.schema["items"] else Shape()
    prefix = context.schema.get("prefixItems")
    begin = len(prefix) if isinstance(prefix, list) else 0
    return Shape(array=context.values.arrays.every(begin, UNBOUNDED, context.goal("items")))


def additional_items(context: Context) -> Shape | None:
    """Items after those that a list under ``items`` covers are valid under a schema; nothing where items is no list."""
    listed = context.schema.get("items")
    if not isinstance(listed, list):
        return None
    return Shape(array=context.values.arrays.every(len(listed), UNBOUNDED, context.goal("additionalItems")))


def min_items(context: Context) -> Shape:
    """At least so many items."""
    return Shape(array=context.values.arrays.at_least(TRUE, context.count("minItems")))


def max_items(context: Context) -> Shape:
    """At most so many items."""
    arrays = context.values.arrays
    return Shape(array=arrays.formulas.negate(arrays.at_least(TRUE, context.count("maxItems") + 1)))


def contains(context: Context) -> Shape:
    """Between minContains (1) and maxContains items are valid under a schema."""
    arrays = context.values.arrays
    goal = context.goal("contains")
    least = context.count("minContains") if "minContains" in context.schema else 1
    parts = [arrays.at_least(goal, least)]
    if "maxContains" in context.schema:
        parts.append(arrays.formulas.negate(arrays.at_least(goal, context.count("maxContains") + 1)))
    return Shape(array=arrays.formulas.all_of(parts))


def unique_items(context: Context) -> Shape | None:
    """No two items are equal."""
    if not context.flag("uniqueItems"):
        return None
    return Shape(array=context.values.arrays.unique())


def _each_in_turn(context: Context, keyword: str) -> Shape:
    arrays = context.values.arrays
    count = context.schemas(keyword)
    return Shape(array=arrays.formulas.all_of(arrays.every(i, i + 1, context.goal(keyword, i)) for i in range(count)))
