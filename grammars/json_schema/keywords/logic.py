"""Keywords that combine schemas of the same value.

Sources: JSON Schema 2020-12 core, sections 8.2.3 and 10.2. Invariant: every combination is exact; nothing is widened.
"""

from __future__ import annotations

from grammars.json_schema.boolean import TRUE
from grammars.json_schema.context import Context
from grammars.json_schema.shapes import ANYTHING, Shape


def ref(context: Context) -> Shape:
    """The value is valid under the schema that the reference names."""
    return context.referred("$ref")


def dynamic_ref(context: Context) -> Shape:
    """The same for a dynamic reference, by way of the schemas through which it is reached."""
    return context.referred("$dynamicRef")


def recursive_ref(context: Context) -> Shape:
    """The same under its name in 2019-09."""
    return context.referred("$recursiveRef")


def all_of(context: Context) -> Shape:
    """The value is valid under every schema."""
    return context.values.shapes.all_of(_branches(context, "allOf"))


def any_of(context: Context) -> Shape:
    """The value is valid under at least one schema."""
    return context.values.shapes.any_of(_branches(context, "anyOf"))


def one_of(context: Context) -> Shape:
    """The value is valid under exactly one schema."""
    return context.values.shapes.exactly_one(_branches(context, "oneOf"))


def negation(context: Context) -> Shape:
    """The value is invalid under the schema."""
    shape = context.values.shapes.negate(context.shape("not"))
    if context.values.arrays.wants_repeats(shape.array):
        raise context.unsupported("not", "asks for arrays in which items repeat, which cannot be enforced")
    return shape


def conditional(context: Context) -> Shape:
    """Valid under ``if`` and ``then``, or invalid under ``if`` and valid under ``else``."""
    shapes = context.values.shapes
    condition = context.shape("if")
    then = context.shape("then") if "then" in context.schema else ANYTHING
    otherwise = context.shape("else") if "else" in context.schema else ANYTHING
    yes = shapes.all_of([condition, then])
    no = shapes.all_of([shapes.negate(condition), otherwise])
    return shapes.any_of([yes, no])


def dependent_schemas(context: Context) -> Shape:
    """Where the object has a key, it is valid under that key's schema."""
    return context.values.shapes.all_of(
        [ANYTHING, *(_where_present(context, name, "dependentSchemas") for name in context.mapping("dependentSchemas"))]
    )


def dependent_required(context: Context) -> Shape:
    """Where the object has a key, it has others too."""
    keyword = "dependentRequired"
    return context.values.shapes.all_of(
        [
            ANYTHING,
            *(_keys_where_present(context, keyword, name, keys) for name, keys in context.mapping(keyword).items()),
        ]
    )


def dependencies(context: Context) -> Shape:
    """Both of the above under one name (drafts 4 to 7)."""
    keyword = "dependencies"
    parts = [ANYTHING]
    for name, asked in context.mapping(keyword).items():
        if isinstance(asked, list):
            parts.append(_keys_where_present(context, keyword, name, asked))
        else:
            parts.append(_where_present(context, name, keyword))
    return context.values.shapes.all_of(parts)


def _branches(context: Context, keyword: str) -> list[Shape]:
    return [context.shape(keyword, index) for index in range(context.schemas(keyword))]


def _where_present(context: Context, name: str, keyword: str) -> Shape:
    objects = context.values.objects
    inner = context.shape(keyword, name)
    absent = objects.formulas.negate(objects.has(name))
    return Shape(object=objects.formulas.any_of((absent, inner.object)), order=inner.order)


def _keys_where_present(context: Context, keyword: str, name: str, keys: object) -> Shape:
    objects = context.values.objects
    present = objects.formulas.all_of(objects.has(key) for key in context.names(keyword, keys))
    absent = objects.formulas.negate(objects.has(name))
    return Shape(object=TRUE if present == TRUE else objects.formulas.any_of((absent, present)))
