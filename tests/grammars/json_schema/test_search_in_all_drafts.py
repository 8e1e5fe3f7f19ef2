"""Random schemas of every draft against an independent validator, with keys in any order: the same values are valid."""

from __future__ import annotations

import json

import jsonschema
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from decoding.errors import ConstraintError
from grammars.constraint import Whitespace
from grammars.json_schema.compile import JsonOptions, PropertyOrder, compile_json_schema

VALIDATORS = {
    "http://json-schema.org/draft-04/schema#": jsonschema.Draft4Validator,
    "http://json-schema.org/draft-06/schema#": jsonschema.Draft6Validator,
    "http://json-schema.org/draft-07/schema#": jsonschema.Draft7Validator,
    "https://json-schema.org/draft/2019-09/schema": jsonschema.Draft201909Validator,
    "https://json-schema.org/draft/2020-12/schema": jsonschema.Draft202012Validator,
}
NAMES = list(VALIDATORS)
KEYS = ["a", "b", "ab"]
KEY = st.sampled_from(KEYS)
SCALARS = st.sampled_from([None, True, False, 0, 1, 2, 3, 7, 0.5, 2.25, -1, "", "a", "b", "ab", "aab", "é"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEY, inner, max_size=3)),
    max_leaves=6,
)
COUNT = st.integers(0, 3)
NUMBER = st.sampled_from([0, 1, 2, 0.5, 2.25])


def keywords(draft, inner):
    """The keywords of a draft."""
    listed = st.lists(inner, min_size=1, max_size=2)
    table = {
        "type": st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"]),
        "enum": st.lists(VALUES, min_size=1, max_size=4, unique_by=repr),
        "minimum": NUMBER,
        "maximum": NUMBER,
        "multipleOf": st.sampled_from([1, 2, 0.25, 0.75]),
        "minLength": COUNT,
        "maxLength": COUNT,
        "pattern": st.sampled_from(["^a", "b$", "^(?!a)", "a.?b", "^[^b]*$"]),
        "minItems": COUNT,
        "maxItems": COUNT,
        "required": st.lists(KEY, min_size=1, max_size=2, unique=True),
        "properties": st.dictionaries(KEY, inner, max_size=3),
        "patternProperties": st.dictionaries(st.sampled_from(["^a", "b$"]), inner, max_size=2),
        "additionalProperties": inner,
        "minProperties": COUNT,
        "maxProperties": COUNT,
        "allOf": listed,
        "anyOf": listed,
        "oneOf": listed,
        "not": inner,
        "$ref": st.sampled_from(["#/definitions/one", "#/definitions/two"]),
    }
    if draft < 4:
        table["items"] = st.one_of(inner, listed)
        table["additionalItems"] = inner
        table["dependencies"] = st.dictionaries(
            KEY, st.one_of(inner, st.lists(KEY, min_size=1, unique=True)), max_size=2
        )
    else:
        table["items"] = inner
        table["prefixItems"] = listed
        table["unevaluatedItems"] = inner
        table["unevaluatedProperties"] = inner
    if draft == 0:
        table["exclusiveMinimum"] = table["exclusiveMaximum"] = st.booleans()
    else:
        table["exclusiveMinimum"] = table["exclusiveMaximum"] = NUMBER
        table["const"] = VALUES
        table["contains"] = inner
        table["propertyNames"] = st.sampled_from([{"maxLength": 1}, {"pattern": "^a"}, {"enum": ["a", "b"]}])
    if draft >= 2:
        table["if"] = table["then"] = table["else"] = inner
    if draft >= 3:
        table["minContains"] = table["maxContains"] = COUNT
        table["dependentRequired"] = st.dictionaries(KEY, st.lists(KEY, min_size=1, unique=True), max_size=2)
        table["dependentSchemas"] = st.dictionaries(KEY, inner, max_size=2)
    return table


@st.composite
def schemas(draw, draft, depth):
    if depth == 0:
        return draw(st.sampled_from([{}, {"type": "integer"}, {"type": "string"}, {"enum": ["a", 1]}, {"not": {}}]))
    table = keywords(draft, schemas(draft, depth - 1))
    chosen = draw(st.lists(st.sampled_from(sorted(table)), min_size=1, max_size=4, unique=True))
    schema = {keyword: draw(table[keyword]) for keyword in chosen}
    for flag, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if draft == 0 and flag in schema:
            schema.setdefault(bound, 1)
    return schema


@st.composite
def documents(draw):
    draft = draw(st.integers(0, 4))
    schema = draw(schemas(draft, 2))
    plain = schemas(draft, 0)
    return {"$schema": NAMES[draft], **schema, "definitions": {"one": draw(plain), "two": draw(plain)}}


SETTINGS = settings(
    max_examples=120,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)


@SETTINGS
@given(schema=documents(), values=st.lists(VALUES, min_size=6, max_size=6), seed=st.integers(0, 99), data=st.data())
def test_the_same_values_are_valid(trie, accepts, walk, schema, values, seed, data):
    draft = NAMES.index(schema["$schema"])
    whitespace = data.draw(st.sampled_from(list(Whitespace)))
    options = JsonOptions(whitespace=whitespace, property_order=PropertyOrder.ANY, integral_floats=True)
    validator = VALIDATORS[schema["$schema"]](schema)
    try:
        grammar = compile_json_schema(schema, options).bind(trie)
    except ConstraintError as error:
        grammar, refusal = None, error
    if grammar is None:
        assert "impossible" in refusal.message
        assert not any(map(validator.is_valid, values))
        return
    separators = (", ", ": ") if whitespace is Whitespace.SPACED else (",", ":")
    for value in values:
        text = json.dumps(value, ensure_ascii=False, separators=separators)
        assert accepts(grammar, text) == validator.is_valid(value), text
    text = walk(grammar, seed)
    assert validator.is_valid(json.loads(text)), (draft, text)


@pytest.mark.parametrize("name", NAMES)
def test_siblings_of_a_reference_count_from_2019_on(grammar_of, accepts, name):
    schema = {"$schema": name, "$ref": "#/definitions/list", "maxItems": 1, "definitions": {"list": {"type": "array"}}}
    assert accepts(grammar_of(schema), "[1,2]") == ("draft-0" in name)
