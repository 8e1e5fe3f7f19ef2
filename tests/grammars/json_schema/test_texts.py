"""How texts are spelled: white space, key order, escapes, depth, numbers."""

from __future__ import annotations

import itertools

import pytest

from grammars.constraint import PropertyOrder, Whitespace
from grammars.json_schema.compile import JsonOptions, compile_json_object, compile_json_schema
from grammars.json_schema.gaps import INDENT
from grammars.json_schema.leaves import OPEN_LEVELS

PAIR = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}, "b": {}}}


@pytest.mark.parametrize(
    ("whitespace", "text", "is_legal"),
    [
        (Whitespace.COMPACT, '{"a":[1,2],"b":{}}', True),
        (Whitespace.COMPACT, '{"a": [1,2],"b":{}}', False),
        (Whitespace.SPACED, '{"a": [1, 2], "b": {}}', True),
        (Whitespace.SPACED, '{"a":[1, 2], "b": {}}', False),
        (Whitespace.SPACED, '{"a":  [1, 2], "b": {}}', False),
        (Whitespace.SPACED, '{ "a": [1, 2], "b": {}}', False),
        (Whitespace.FLEXIBLE, '{"a":[1, 2],\n\t"b" : { } }', True),
        (Whitespace.FLEXIBLE, '{\r\n  "a": [\n    1,\n    2\n  ]\n}', True),
        (Whitespace.FLEXIBLE, '{"a":[1,\n' + INDENT * " " + "2]}", True),
        (Whitespace.FLEXIBLE, '{"a":[1,\n' + (INDENT + 1) * " " + "2]}", False),
        (Whitespace.FLEXIBLE, '{"a":[1,  2]}', False),
        (Whitespace.FLEXIBLE, '{"a":[1,\n\n2]}', False),
        (Whitespace.FLEXIBLE, '{"a":[1,\r2]}', False),
        (Whitespace.FLEXIBLE, ' {"a":[1]}', False),
    ],
)
def test_white_space(grammar_of, accepts, whitespace, text, is_legal):
    assert accepts(grammar_of(PAIR, whitespace), text) == is_legal


def test_no_white_space_after_the_end(grammar_of):
    matcher = grammar_of({"type": "array"}, Whitespace.FLEXIBLE).matcher()
    for byte in b"[ ]":
        matcher.advance(byte)
    assert matcher.only_end()


def test_declared_keys_come_in_order_before_all_others(grammar_of, accepts):
    grammar = grammar_of(PAIR | {"required": ["z", "b"]})
    assert accepts(grammar, '{"a":[],"b":0,"y":0,"z":0}')
    assert accepts(grammar, '{"b":0,"z":0,"y":0}')
    assert not accepts(grammar, '{"b":0,"a":[],"z":0}')
    assert not accepts(grammar, '{"z":0,"b":0}')
    assert not accepts(grammar, '{"a":[],"z":0}')


def test_the_order_of_combined_schemas_is_own_keys_first(grammar_of, accepts):
    grammar = grammar_of({"allOf": [{"properties": {"x": {}, "a": {}}}], "properties": {"a": {}, "b": {}}})
    assert accepts(grammar, '{"a":1,"b":1,"x":1}')
    assert not accepts(grammar, '{"x":1,"a":1}')


@pytest.mark.parametrize("keys", list(itertools.permutations("abyz")))
def test_any_order_takes_every_order_and_each_key_once(trie, accepts, keys):
    options = JsonOptions(property_order=PropertyOrder.ANY)
    grammar = compile_json_schema(PAIR | {"required": ["z", "b"]}, options).bind(trie)
    members = [f'"{key}":[]' for key in keys]
    assert accepts(grammar, "{" + ",".join(members) + "}")
    assert not accepts(grammar, "{" + ",".join([*members, members[0]]) + "}")
    assert accepts(grammar, "{" + ",".join(members[:3]) + "}") == ({"z", "b"} <= set(keys[:3]))


@pytest.mark.parametrize(
    ("text", "is_legal"),
    [
        (r'"\u00e9\ud83d\ude00\n\/"', True),
        (r'"\ud83d"', False),
        (r'"\ude00"', False),
        (r'"\ud83dx"', False),
        ('"é😀"', True),
        ('"a\nb"', False),
        ('"\x7f"', True),
    ],
)
def test_strings(grammar_of, accepts, text, is_legal):
    assert accepts(grammar_of({"type": "string"}), text) == is_legal


def test_bytes_that_are_no_utf8_are_illegal(grammar_of):
    matcher = grammar_of({"type": "string"}).matcher()
    matcher.advance(ord('"'))
    row = matcher.mask()
    assert not any(byte in row for byte in (0x80, 0xC0, 0xC1, 0xF5, 0xFF))
    matcher.advance(0xED)
    assert 0xA0 not in matcher.mask()


def test_any_object_nests_so_deep_and_no_deeper(trie, accepts):
    grammar = compile_json_object(JsonOptions()).bind(trie)
    for levels, is_legal in ((OPEN_LEVELS, True), (OPEN_LEVELS + 1, False)):
        assert accepts(grammar, '{"a":' + "[" * levels + "]" * levels + "}") == is_legal
    assert not accepts(grammar, "[]")


def test_numbers_end(grammar_of, accepts):
    for schema in ({"type": "integer"}, {"type": "number"}, {"type": "number", "minimum": 0}, {}):
        grammar = grammar_of(schema)
        assert accepts(grammar, "12")
        assert not accepts(grammar, "1" * 500)
        assert not accepts(grammar, "0." + "1" * 500)
        assert not accepts(grammar, "01")


def test_recursion_goes_as_deep_as_the_text(grammar_of, accepts):
    grammar = grammar_of({"type": "object", "properties": {"a": {"$ref": "#"}}, "additionalProperties": False})
    assert accepts(grammar, '{"a":' * 200 + "{}" + "}" * 200)
    assert not accepts(grammar, '{"a":' * 200 + "[]" + "}" * 200)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"const": 123456789012345678901234567890}, "123456789012345678901234567890"),
        ('{"enum": [0.1234567890123456789012345678901234]}', "0.1234567890123456789012345678901234"),
        (
            {"type": "integer", "minimum": 10**30 + 1, "maximum": 10**30 + 2, "multipleOf": 2},
            "1000000000000000000000000000002",
        ),
        ({"type": "integer", "multipleOf": 10**36 + 7, "minimum": 1, "maximum": 10**36 + 7}, str(10**36 + 7)),
    ],
)
def test_no_number_is_rounded(grammar_of, schema, text):
    """More digits than the 28 of Python's default decimal context."""
    assert grammar_of(schema).shortest_text().decode() == text
