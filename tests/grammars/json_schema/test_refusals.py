"""What is no schema, is impossible, too large, or cannot be enforced: each refused by name and place."""

from __future__ import annotations

import json
import time

import pytest

from decoding.errors import ConstraintError, GrammarStateError, UnsupportedConstraintError
from grammars.json_schema.compile import JsonOptions, compile_json_schema
from grammars.json_schema.source import JsonSource

WRONG = [
    ("{", "", "is not JSON"),
    ('{"a": NaN}', "", "NaN"),
    ('{"type": "string", "type": "null"}', "", "twice"),
    (r'{"const": "\ud800"}', "/const", "lone surrogate"),
    (r'{"enum": ["\ud83d\ude00", "x\udc00"]}', "/enum/1", "lone surrogate"),
    (r'{"properties": {"\uDFff": true}}', "/properties", "lone surrogate"),
    ('{"minimum": 1e999999999}', "", "more than 4300 digits"),
    ('{"const": 1e-99999999}', "", "more than 4300 digits"),
    ("[]", "", "is an array"),
    ("3", "", "is a number"),
    ({"type": "text"}, "/type", "'text' is no type"),
    ({"type": []}, "/type", "at least one type"),
    ({"properties": []}, "/properties", "must be an object"),
    ({"properties": {"a": 3}}, "/properties/a", "is no schema"),
    ({"items": {"minLength": "2"}}, "/items/minLength", "must be a number"),
    ({"minItems": -1}, "/minItems", "at least 0"),
    ({"minItems": 1.5}, "/minItems", "at least 0"),
    ({"enum": []}, "/enum", "is empty"),
    ({"enum": "a"}, "/enum", "must be a list"),
    ({"anyOf": []}, "/anyOf", "not empty"),
    ({"multipleOf": 0}, "/multipleOf", "above 0"),
    ({"required": "a"}, "/required", "lists of strings"),
    ({"pattern": "(a"}, "/pattern", "(a"),
    ({"pattern": 3}, "/pattern", "must be a string"),
    ({"$ref": "#/$defs/x"}, "/$ref", "names nothing"),
    ({"$ref": "#x"}, "/$ref", "names nothing"),
    ({"properties": {"a/b": {"$ref": "#/~0"}}}, "/properties/a~1b/$ref", "names nothing"),
    ({"$ref": "#"}, "", "refers to itself"),
    ({"allOf": [{"$ref": "#"}]}, "", "refers to itself"),
    (
        {"$ref": "#/$defs/a", "unevaluatedItems": False, "$defs": {"a": {"$ref": "#/$defs/a"}}},
        "/$defs/a",
        "refers to itself",
    ),
    (
        {"$ref": "#/$defs/a", "unevaluatedProperties": False, "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}},
        "/$defs/a",
        "refers to itself",
    ),
    ({"uniqueItems": 1}, "/uniqueItems", "true or false"),
]

IMPOSSIBLE = [
    (False, ""),
    ({"type": "string", "minLength": 3, "maxLength": 2}, ""),
    (
        {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer", "minimum": 3, "maximum": 2}}},
        "/properties/a",
    ),
    ({"type": "object", "required": ["a"], "properties": {"a": False}}, ""),
    ({"type": "object", "required": ["a"], "additionalProperties": False}, ""),
    ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, ""),
    ({"allOf": [{"type": "string"}, {"type": "null"}]}, ""),
    ({"type": "array", "items": False, "minItems": 1}, ""),
    ({"type": "object", "propertyNames": {"enum": ["a", "b"]}, "minProperties": 3}, ""),
    ({"oneOf": [{"type": "string"}, {"type": "string"}]}, ""),
    ({"const": "a", "pattern": "b"}, ""),
    ({"type": "array", "contains": {"type": "null"}, "items": {"type": "string"}}, ""),
]

UNSUPPORTED = [
    ({"$ref": "https://example.com/schema"}, "/$ref", "outside the schema"),
    ({"$schema": "http://json-schema.org/draft-03/schema#"}, "/$schema", "not supported"),
    ({"items": {"pattern": "(a)\\1"}}, "/items/pattern", "back-reference"),
    ({"not": {"uniqueItems": True}}, "/not", "items repeat"),
    ({"type": "array", "not": {"uniqueItems": True}}, "/not", "items repeat"),
    ({"properties": {"a": {"type": "array", "not": {"uniqueItems": True}}}}, "/properties/a/not", "items repeat"),
    (
        {
            "required": ["a"],
            "type": "object",
            "properties": {"a": {"type": "array"}},
            "not": {"properties": {"a": {"uniqueItems": True}}},
        },
        "/not/properties/a",
        "items repeat",
    ),
]


@pytest.mark.parametrize(("schema", "pointer", "message"), WRONG, ids=str)
def test_what_is_no_schema_is_refused_at_its_place(schema, pointer, message):
    with pytest.raises(ConstraintError) as caught:
        compile_json_schema(schema, JsonOptions())
    assert message in str(caught.value)
    assert caught.value.pointer == pointer
    assert caught.value.field == "constraint.json_schema"
    assert not isinstance(caught.value, UnsupportedConstraintError)


@pytest.mark.parametrize(("schema", "pointer"), IMPOSSIBLE, ids=str)
def test_an_impossible_schema_is_refused_at_the_part_at_fault(schema, pointer):
    with pytest.raises(ConstraintError, match="impossible") as caught:
        compile_json_schema(schema, JsonOptions())
    assert caught.value.pointer == pointer


@pytest.mark.parametrize(("schema", "pointer", "message"), UNSUPPORTED, ids=str)
def test_what_cannot_be_enforced_is_refused_at_its_place(schema, pointer, message):
    with pytest.raises(UnsupportedConstraintError) as caught:
        compile_json_schema(schema, JsonOptions())
    assert message in str(caught.value)
    assert caught.value.pointer == pointer


def test_best_effort_reports_instead(trie, accepts):
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(x)\\1"}}, "required": ["a"]}
    constraint = compile_json_schema(schema, JsonOptions(best_effort=True))
    assert [(item.pointer, item.keyword) for item in constraint.unenforced] == [("/properties/a/pattern", "pattern")]
    assert accepts(constraint.bind(trie), '{"a":"y"}')
    assert not accepts(constraint.bind(trie), '{"a":1}')


def test_unknown_keywords_and_formats_are_reported():
    schema = {"type": "string", "format": "colour", "colour": "red", "title": "T", "x/y": 1}
    constraint = compile_json_schema(schema, JsonOptions())
    assert sorted(item.pointer for item in constraint.unenforced) == ["/colour", "/format", "/x~1y"]


def test_formats_assert_by_default_and_are_notes_by_option(trie, accepts):
    asserted = compile_json_schema({"format": "date"}, JsonOptions())
    noted = compile_json_schema({"format": "date"}, JsonOptions(assert_formats=False))
    assert not asserted.unenforced
    assert [item.pointer for item in noted.unenforced] == ["/format"]
    assert not accepts(asserted.bind(trie), '"today"')
    assert accepts(noted.bind(trie), '"today"')
    assert asserted.text_key != noted.text_key


def deep(levels):
    schema = {"type": "null"}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


def one_of(levels):
    return {"oneOf": [one_of(levels - 1), {"type": "null"}]} if levels else {"type": "string"}


def test_what_shows_only_in_the_middle_of_a_text_fails_the_matcher_alone(trie, monkeypatch):
    grammar = compile_json_schema({"type": "array", "items": {"type": "string"}}, JsonOptions()).bind(trie)

    def too_much(*_):
        raise UnsupportedConstraintError("constraint.json_schema", "is too much")

    monkeypatch.setattr(JsonSource, "expand", too_much)
    matcher, other = grammar.matcher(), grammar.matcher()
    with pytest.raises(GrammarStateError, match="too long to follow"):
        matcher.mask()
    monkeypatch.undo()
    with pytest.raises(GrammarStateError, match="too long to follow"):
        matcher.mask()
    assert ord("[") in other.mask()


def test_keys_that_overlap_in_too_many_ways_are_refused_at_their_place(monkeypatch):
    monkeypatch.setattr("grammars.json_schema.keys.MAX_REST_CLASSES", 32)
    patterns = {f"{chr(97 + index)}": {} for index in range(6)}
    schema = {"properties": {"p": {"patternProperties": patterns, "minProperties": 1, "additionalProperties": False}}}
    with pytest.raises(UnsupportedConstraintError, match="overlap") as caught:
        compile_json_schema(schema, JsonOptions())
    assert caught.value.pointer == "/properties/p"


def nested_if(levels):
    return {"if": nested_if(levels - 1), "then": {"minLength": 2}} if levels else {"pattern": "^a"}


BOMBS = {
    "sixty if": nested_if(60),
    "references in allOf": {
        "$defs": {str(i): {"allOf": [{"$ref": f"#/$defs/{i + 1}"}]} for i in range(300)} | {"300": {}},
        "$ref": "#/$defs/0",
    },
    "10,000 numbers": {"enum": list(range(0, 30_000, 3))},
    "many members": {
        "type": "object",
        "properties": {f"p{index}": {"type": "integer"} for index in range(5000)},
        "additionalProperties": False,
        "minProperties": 2500,
    },
    "many to contain": {"contains": {"const": 1}, "minContains": 10_000, "maxContains": 20_000, "type": "array"},
    "10,000 levels as text": '{"not":' * 10_000 + "{}" + "}" * 10_000,
    "10,000 levels parsed": deep(10_000),
    "5 MB": json.dumps({"enum": ["x" * 100 + str(index) for index in range(50_000)]}),
    "60,000 values": {"enum": list(range(60_000))},
    "30,000 groups": {"pattern": "(" * 30_000 + ")" * 30_000},
    "nested counts": {"pattern": "^(a{1,1000}){1,1000}$", "maxLength": 10},
    "many defs": {
        "$defs": {str(index): {"$ref": f"#/$defs/{index + 1}"} for index in range(9999)},
        "$ref": "#/$defs/0",
    },
    "twenty oneOf": one_of(20),
    "many choices": {"enum": [f"choice {index}" for index in range(40_000)]},
    "large counts": {
        "type": "array",
        "items": {"type": "string", "minLength": 10**9},
        "minItems": 10**9,
        "maxItems": 10**12,
    },
    "large object": {"properties": {f"p{index}": {"type": "string"} for index in range(3000)}, "required": ["p2999"]},
    "self-reference under logic": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_end_soon_one_way_or_the_other(name, trie):
    started = time.process_time()
    try:
        grammar = compile_json_schema(BOMBS[name], JsonOptions()).bind(trie)
    except ConstraintError:
        pass
    else:
        grammar.matcher().mask()
    assert time.process_time() - started < 20
