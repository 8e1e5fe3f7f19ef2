"""Keywords about objects.

Sources: JSON Schema 2020-12 core, section 10.3.2, and validation, section 6.5. Invariant: none of them says anything
of values that are no objects.
"""

from __future__ import annotations

from grammars.json_schema.atoms import KeySet
from grammars.json_schema.boolean import FALSE
from grammars.json_schema.context import Context
from grammars.json_schema.shapes import Shape


def properties(context: Context) -> Shape:
    """Members with these keys are valid under these schemas."""
    objects = context.values.objects
    names = context.mapping("properties")
    parts = [objects.every(KeySet(frozenset((name,))), context.goal("properties", name)) for name in names]
    return Shape(object=objects.formulas.all_of(parts), order=tuple(names))


def pattern_properties(context: Context) -> Shape:
    """Members whose keys match these patterns are valid under these schemas."""
    objects = context.values.objects
    parts = []
    for pattern in context.mapping("patternProperties"):
        keys = KeySet(frozenset(), (context.pattern("patternProperties", pattern),))
        parts.append(objects.every(keys, context.goal("patternProperties", pattern)))
    return Shape(object=objects.formulas.all_of(parts))


def additional_properties(context: Context) -> Shape:
    """Members with other keys than the two keywords above name are valid under a schema."""
    names = context.mapping("properties") if "properties" in context.schema else {}
    patterns = context.mapping("patternProperties") if "patternProperties" in context.schema else {}
    languages = tuple(context.pattern("patternProperties", pattern) for pattern in patterns)
    keys = KeySet(frozenset(names), languages, negated=True)
    return Shape(object=context.values.objects.every(keys, context.goal("additionalProperties")))


def property_names(context: Context) -> Shape:
    """Every key, as a string, is valid under a schema."""
    keys = KeySet(frozenset(), (context.shape("propertyNames").string,), negated=True)
    return Shape(object=context.values.objects.every(keys, FALSE))


def required(context: Context) -> Shape | None:
    """There is a member with each of these keys."""
    if isinstance(context.schema["required"], bool):
        context.reporter.report(context.pointer, "required", "is a flag of draft 3, which asserts nothing since")
        return None
    objects = context.values.objects
    names = context.names("required", context.schema["required"])
    return Shape(object=objects.formulas.all_of(objects.has(name) for name in names))


def min_properties(context: Context) -> Shape:
    """At least so many members."""
    return Shape(object=context.values.objects.at_least(context.count("minProperties")))


def max_properties(context: Context) -> Shape:
    """At most so many members."""
    objects = context.values.objects
    return Shape(object=objects.formulas.negate(objects.at_least(context.count("maxProperties") + 1)))
