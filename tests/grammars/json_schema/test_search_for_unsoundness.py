"""Random schemas against independent validators: what masks lead to is valid, and what is valid can be written."""

from __future__ import annotations

import itertools
import json

import jsonschema
import jsonschema_rs
import pytest
from hypothesis import HealthCheck, Phase, given, reject, settings
from hypothesis import strategies as st

from decoding.errors import ConstraintError
from grammars.constraint import Whitespace

KEYS = ["a", "b", "ab", "é"]
INTEGERS = st.integers(-3, 12)
TEXTS = st.sampled_from(["", "a", "b", "ab", "aab", "é", 'a"', "\n", "10"])
SCALARS = st.one_of(st.none(), st.booleans(), INTEGERS, st.sampled_from([0.5, 1.5, 2.25]), TEXTS)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=3)),
    max_leaves=5,
)


def keywords(inner):
    count = st.integers(0, 3)
    return {
        "type": st.one_of(
            st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"]),
            st.lists(
                st.sampled_from(["null", "integer", "string", "array", "object"]), min_size=1, max_size=3, unique=True
            ),
        ),
        "const": VALUES,
        "enum": st.lists(VALUES, min_size=1, max_size=3),
        "minimum": INTEGERS,
        "exclusiveMaximum": INTEGERS,
        "multipleOf": st.sampled_from([2, 3, 0.5]),
        "minLength": count,
        "maxLength": count,
        "pattern": st.sampled_from(["^a", "b$", "^[ab]*$", "a.?b", "é"]),
        "items": inner,
        "prefixItems": st.lists(inner, min_size=1, max_size=2),
        "minItems": count,
        "maxItems": count,
        "contains": inner,
        "properties": st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
        "patternProperties": st.dictionaries(st.sampled_from(["^a", "b$"]), inner, max_size=2),
        "additionalProperties": inner,
        "propertyNames": st.sampled_from([{"maxLength": 1}, {"pattern": "^[ab]+$"}, {"enum": ["a", "b", "c"]}]),
        "required": st.lists(st.sampled_from(KEYS), max_size=2, unique=True),
        "minProperties": count,
        "maxProperties": count,
        "dependentRequired": st.dictionaries(
            st.sampled_from(KEYS), st.lists(st.sampled_from(KEYS), max_size=2, unique=True)
        ),
        "allOf": st.lists(inner, min_size=1, max_size=2),
        "anyOf": st.lists(inner, min_size=1, max_size=3),
        "oneOf": st.lists(inner, min_size=1, max_size=3),
        "not": inner,
        "unevaluatedProperties": inner,
        "unevaluatedItems": inner,
        "if": inner,
        "then": inner,
        "else": inner,
        "$ref": st.sampled_from(["#/$defs/one", "#/$defs/two"]),
    }


@st.composite
def schemas(draw, depth=2):
    if depth == 0:
        return draw(
            st.sampled_from([True, {"type": "integer"}, {"type": "string"}, {"const": "a"}, {"$ref": "#/$defs/one"}])
        )
    inner = schemas(depth - 1)
    table = keywords(inner)
    chosen = draw(st.lists(st.sampled_from(sorted(table)), max_size=3, unique=True))
    return {keyword: draw(table[keyword]) for keyword in chosen}


@st.composite
def documents(draw, unique=False):
    schema = draw(schemas())
    if unique:
        schema = {
            "anyOf": [{"type": "array", "items": schema, "uniqueItems": True}],
            "minItems": draw(st.integers(0, 3)),
        }
    one, two = draw(schemas(1)), draw(schemas(1))
    return {**schema, "$defs": {"one": one, "two": two}}


def compiled(grammar_of, schema, whitespace=Whitespace.COMPACT):
    try:
        return grammar_of(schema, whitespace)
    except ConstraintError:  # impossible, or a reference cycle without progress
        return reject()


SETTINGS = settings(
    max_examples=100,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # a failing schema is small as it is
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)


@SETTINGS
@given(schema=documents(), seed=st.integers(0, 1000), whitespace=st.sampled_from(list(Whitespace)))
def test_walks_end_in_valid_texts(grammar_of, walk, schema, seed, whitespace):
    grammar = compiled(grammar_of, schema, whitespace)
    text = walk(grammar, seed)
    value = json.loads(text, object_pairs_hook=without_repeats)
    jsonschema.Draft202012Validator(schema).validate(value)
    assert jsonschema_rs.is_valid(schema, value)


@SETTINGS
@given(schema=documents(unique=True), seed=st.integers(0, 1000), whitespace=st.sampled_from(list(Whitespace)))
def test_walks_through_arrays_without_repeats_end_in_valid_texts(grammar_of, walk, schema, seed, whitespace):
    value = json.loads(walk(compiled(grammar_of, schema, whitespace), seed))
    jsonschema.Draft202012Validator(schema).validate(value)
    assert jsonschema_rs.is_valid(schema, value)


@SETTINGS
@given(schema=documents(), value=VALUES)
def test_texts_are_accepted_where_they_are_valid(grammar_of, accepts, schema, value):
    try:
        is_valid = jsonschema.Draft202012Validator(schema).is_valid(value) if has_progress(schema) else reject()
    except RecursionError:
        reject()
    try:
        grammar = grammar_of(schema)
    except ConstraintError as error:
        if "refers to itself" in error.message:
            reject()
        assert not is_valid
        return
    spellings = [json.dumps(v, ensure_ascii=False, separators=(",", ":")) for v in orders(value)]
    accepted = [accepts(grammar, text) for text in spellings]
    assert any(accepted) == is_valid


def has_progress(schema):
    try:
        jsonschema.Draft202012Validator(schema).is_valid([{}])
        jsonschema.Draft202012Validator(schema).is_valid(dict.fromkeys(KEYS, 1))
    except RecursionError:
        return False
    return True


def without_repeats(pairs):
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def orders(value):
    """The value with the members of its objects in every order."""
    if isinstance(value, list):
        yield from map(list, itertools.product(*map(list, map(orders, value))))
    elif isinstance(value, dict):
        for keys in itertools.permutations(value):
            for members in itertools.product(*(list(orders(value[key])) for key in keys)):
                yield dict(zip(keys, members, strict=True))
    else:
        yield value


def test_the_search_finds_what_is_planted(grammar_of, accepts):
    """A schema that says less than another accepts what the other's validator refuses."""
    grammar = grammar_of({"type": "integer"})
    assert accepts(grammar, "7")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator({"type": "integer", "maximum": 3}).validate(7)
