"""Keywords about types, fixed values, numbers and strings.

Source: JSON Schema 2020-12 validation, sections 6.1 to 6.3 and 7. Invariant: keywords about numbers say nothing of
other values, nor do those about strings.
"""

from __future__ import annotations

from typing import Any

from grammars.json_schema.boolean import FALSE, TRUE
from grammars.json_schema.constants import constant
from grammars.json_schema.context import Context
from grammars.json_schema.leaves import Equal
from grammars.json_schema.shapes import ANY_BOOLEAN, NOTHING, Shape
from grammars.regular.formats import encodings

_TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")


def types(context: Context) -> Shape:
    """The value is of one of these types."""
    named = context.schema["type"]
    listed: list[Any] = named if isinstance(named, list) else [named]
    for name in listed:
        if name not in _TYPES:
            raise context.wrong("type", f"{name!r} is no type; use one of {', '.join(_TYPES)}")
    if not listed:
        raise context.wrong("type", "must name at least one type")
    number = FALSE
    if "number" in listed:
        number = TRUE
    elif "integer" in listed:
        number = context.values.languages.integers()
    return Shape(
        null="null" in listed,
        booleans=ANY_BOOLEAN if "boolean" in listed else 0,
        number=number,
        string=TRUE if "string" in listed else FALSE,
        array=TRUE if "array" in listed else FALSE,
        object=TRUE if "object" in listed else FALSE,
    )


def const(context: Context) -> Shape:
    """The value equals a constant."""
    return context.values.leaf_shape(Equal(constant(context.schema["const"])))


def enum(context: Context) -> Shape:
    """The value equals one of a list of constants."""
    listed = context.schema["enum"]
    if not isinstance(listed, list):
        raise context.wrong("enum", "must be a list")
    if not listed:
        raise context.wrong("enum", "is empty, so nothing is valid; give at least one value")
    values = context.values
    words = [value for value in listed if isinstance(value, str)]
    parts = [Shape(**_ONLY_STRINGS, string=values.languages.words(words))] if words else []
    others = dict.fromkeys(constant(value) for value in listed if not isinstance(value, str))
    parts += [values.leaf_shape(Equal(value)) for value in others]
    return values.shapes.any_of([NOTHING, *parts])


def minimum(context: Context) -> Shape:
    """The number is at least this; above it under draft 4's flag."""
    exclusive = context.document.dialect.boolean_exclusive and context.schema.get("exclusiveMinimum") is True
    return Shape(number=context.values.languages.above(context.number("minimum"), inclusive=not exclusive))


def maximum(context: Context) -> Shape:
    """The number is at most this; below it under draft 4's flag."""
    exclusive = context.document.dialect.boolean_exclusive and context.schema.get("exclusiveMaximum") is True
    languages = context.values.languages
    return Shape(number=languages.numbers.negate(languages.above(context.number("maximum"), inclusive=exclusive)))


def exclusive_minimum(context: Context) -> Shape | None:
    """The number is above this."""
    if context.document.dialect.boolean_exclusive:
        context.flag("exclusiveMinimum")
        return None
    return Shape(number=context.values.languages.above(context.number("exclusiveMinimum"), inclusive=False))


def exclusive_maximum(context: Context) -> Shape | None:
    """The number is below this."""
    if context.document.dialect.boolean_exclusive:
        context.flag("exclusiveMaximum")
        return None
    languages = context.values.languages
    return Shape(number=languages.numbers.negate(languages.above(context.number("exclusiveMaximum"), inclusive=True)))


def multiple_of(context: Context) -> Shape:
    """The number is an integral multiple of this."""
    divisor = context.number("multipleOf")
    if divisor <= 0:
        raise context.wrong("multipleOf", "must be above 0")
    return Shape(number=context.values.languages.multiples(divisor))


def min_length(context: Context) -> Shape:
    """The string has at least so many code points."""
    return Shape(string=context.values.languages.longer(context.count("minLength") - 1))


def max_length(context: Context) -> Shape:
    """The string has at most so many code points."""
    languages = context.values.languages
    return Shape(string=languages.strings.negate(languages.longer(context.count("maxLength"))))


def pattern(context: Context) -> Shape:
    """The string has a part that matches."""
    return Shape(string=context.pattern("pattern", context.string("pattern")))


def string_format(context: Context) -> Shape | None:
    """The string is of a named format; unknown ones assert nothing."""
    name = context.string("format")
    if not context.reporter.assert_formats:
        context.reporter.report(context.pointer, "format", "is a note by option, so it asserts nothing")
        return None
    formula = context.values.languages.format(name)
    if formula is None:
        context.reporter.report(context.pointer, "format", f"{name!r} is no known format, so it asserts nothing")
        return None
    return Shape(string=formula)


def content_encoding(context: Context) -> Shape | None:
    """The string is in base 64; other encodings assert nothing.

    An assertion as draft 7 (validation, section 8) allows it, in all drafts, and by the option of formats.
    """
    name = context.string("contentEncoding")
    if name != "base64" or not context.reporter.assert_formats:
        context.reporter.report(context.pointer, "contentEncoding", f"{name!r} is a note, so it asserts nothing")
        return None
    return Shape(string=context.pattern("contentEncoding", f"^(?:{encodings.BASE64})$"))


_ONLY_STRINGS: dict[str, Any] = {"null": False, "booleans": 0, "number": FALSE, "array": FALSE, "object": FALSE}
