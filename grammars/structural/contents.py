"""What stands between a tag's markers, as a source that ends where its end marker begins.

JSON ends by itself. Other contents are read together with the end marker's text up to its first special token, so that
they end at the first occurrence of the marker and nowhere else. Invariant: a content that compiles has at least one
text.
"""

from __future__ import annotations

from dataclasses import dataclass

from decoding.errors import ConstraintError
from grammars.choices import compile_choices
from grammars.constraint import ConstraintKind, ConstraintSpec, Formats, UnenforcedKeyword
from grammars.json_schema.compile import JsonOptions, compile_json_object, compile_json_schema
from grammars.limits import ConstraintLimits
from grammars.matching.compile import compile_expression
from grammars.matching.constraint import CompiledConstraint, Language
from grammars.matching.tables import Tables
from grammars.regular import ANY_CHAR, ANY_TEXT, build, complement, concat, intersection, literal
from grammars.regular.charset import ANY, CharSet
from grammars.regular.regex.compile import compile_regex as parse_regex
from grammars.structural.markers import Marker, MarkerReader

JSON_KINDS = frozenset({ConstraintKind.JSON_SCHEMA, ConstraintKind.JSON_OBJECT})
_NUMBER = frozenset(b"-0123456789")
_IN_NUMBER = b"0123456789.eE+-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The language between a tag's markers, and what is left of the end marker after it."""

    language: Language
    end: bytes
    unenforced: tuple[UnenforcedKeyword, ...] = ()


def json_options(spec: ConstraintSpec, limits: ConstraintLimits, characters: CharSet) -> JsonOptions:
    """How the JSON texts of a constraint are generated."""
    return JsonOptions(
        whitespace=spec.whitespace,
        property_order=spec.property_order,
        assert_formats=spec.formats is Formats.ASSERT,
        integral_floats=spec.integral_floats,
        best_effort=spec.best_effort,
        characters=characters,
        limits=limits,
    )


def compile_content(
    spec: ConstraintSpec, end: Marker, *, reader: MarkerReader, options: JsonOptions, only_objects: bool
) -> Content:
    """Over the characters of ``options``, which are those of a schema or object.

    Raises ConstraintError and UnsupportedConstraintError, whose field is that of ``spec``.
    """
    if spec.kind not in JSON_KINDS and not end.code:
        raise ConstraintError(spec.field, "does not close itself; give the tag an end")
    try:
        if spec.kind in JSON_KINDS:
            return _json(spec, end, options, only_objects=only_objects)
        read = _choices if spec.kind is ConstraintKind.CHOICES else _regex
        return read(spec, end, reader, options.characters)
    except ConstraintError as error:
        raise type(error)(spec.field, error.bare_message, error.pointer) from error


def _json(spec: ConstraintSpec, end: Marker, options: JsonOptions, *, only_objects: bool) -> Content:
    is_schema = spec.kind is ConstraintKind.JSON_SCHEMA
    constraint = compile_json_schema(spec.text, options) if is_schema else compile_json_object(options)
    first = _first_bytes(constraint)
    if only_objects and first != {b"{"[0]}:
        raise ConstraintError(spec.field, 'admits arguments that are no object; add "type": "object"')
    if first & _NUMBER and (not end.code or end.code[0] in _IN_NUMBER):
        problem = "may be a number, which the tag's end would go on with; begin the end with another character"
        raise ConstraintError(spec.field, problem)
    unenforced = tuple(
        UnenforcedKeyword(pointer=item.pointer, keyword=item.keyword, reason=item.reason, field=spec.field)
        for item in constraint.unenforced
    )
    return Content(language=constraint.language, end=end.code, unenforced=unenforced)


def _regex(spec: ConstraintSpec, end: Marker, reader: MarkerReader, characters: CharSet) -> Content:
    body = parse_regex(spec.text, dialect=spec.dialect.value, field=spec.field)
    head = literal(end.head)
    if end.specials:
        mark = literal(reader.spelled(end.opening)[len(end.head) :])
        expression = intersection(concat(body, head), complement(concat(ANY_TEXT, mark, ANY_TEXT)))
    else:
        early = concat(ANY_TEXT, head, ANY_CHAR, ANY_TEXT)
        expression = intersection(concat(body, head), complement(early))
    if build(body).is_empty:
        raise ConstraintError(spec.field, "matches no text at all; check its anchors and look-around")
    if build(expression).is_empty:
        raise ConstraintError(spec.field, f"matches no text without the tag's end {end.text!r}; change one of them")
    if characters != ANY and build(expression, characters=characters).is_empty:
        raise ConstraintError(
            spec.field, "matches no text that the model can write: its vocabulary lacks tokens for it"
        )
    return Content(language=compile_expression(expression, "", characters=characters).language, end=end.rest)


def _choices(spec: ConstraintSpec, end: Marker, reader: MarkerReader, characters: CharSet) -> Content:
    mark = (reader.spelled(end.opening)[len(end.head) :] if end.specials else end.code).decode()
    for index, value in enumerate(spec.values):
        text = value if end.specials else value + mark
        if mark in (text if end.specials else text[:-1]):
            problem = f"holds the tag's end {end.text!r} in values[{index}]; change one of them"
            raise ConstraintError(spec.field, problem)
    head = end.head.decode()
    choices = compile_choices((value + head for value in spec.values), characters)
    return Content(language=choices.language, end=end.rest)


def _first_bytes(constraint: CompiledConstraint) -> set[int]:
    tables = Tables()
    source = constraint.language.source()
    state, _ = source.start(tables)
    source.expand(tables, state)
    return set(tables.rows[state].nonzero()[0].tolist())
