"""States that are shared or counted read what states of their own would read."""

from __future__ import annotations

import random

import pytest

from grammars.constraint import PropertyOrder, Whitespace
from grammars.json_schema import languages
from grammars.json_schema.compile import JsonOptions, compile_json_schema
from grammars.json_schema.source import JsonSource

OF_LENGTHS = [
    {"type": "string", "minLength": 2, "maxLength": 4},
    {"oneOf": [{"type": "string", "maxLength": 2}, {"type": "string", "minLength": 1, "maxLength": 4}]},
    {"type": "array", "items": {"type": "string", "maxLength": 3}, "contains": {"maxLength": 1}, "minItems": 2},
    {"anyOf": [{"type": "string", "minLength": 3}, {"type": "string", "maxLength": 1}]},
    {"type": "object", "patternProperties": {"^a?$": {}}, "propertyNames": {"maxLength": 2}, "maxProperties": 2},
]
OF_KEYS = [
    {"properties": {"a": {}, "ab": {"type": "integer"}, "b": {"type": "string"}}, "required": ["b"], "type": "object"},
    {"properties": {"a": {}, "b": {}, "ab": {}}, "additionalProperties": {"type": "null"}, "type": "object"},
    {"properties": {"a": {"const": 1}, "b": {}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}], "type": "object"},
]


def walk_both(grammar, twin, seed, steps=25):
    draw = random.Random(seed)
    one, other = grammar.matcher(), twin.matcher()
    for _ in range(steps):
        row = one.mask()
        assert row.bits_W.tobytes() == other.mask().bits_W.tobytes()
        token = draw.choice([token for token in range(32 * len(row.bits_W)) if token in row])
        one.advance(token)
        other.advance(token)
        if one.is_finished:
            break


@pytest.mark.parametrize("schema", OF_LENGTHS, ids=str)
def test_strings_of_bounded_lengths_are_counted_as_their_automaton_counts_them(schema, trie, monkeypatch):
    grammar = compile_json_schema(schema, JsonOptions()).bind(trie)
    grammar.matcher().mask()
    with monkeypatch.context() as patch:
        patch.setattr(languages, "MAX_BOUNDS", 0)
        twin = compile_json_schema(schema, JsonOptions()).bind(trie)
        for seed in range(12):
            walk_both(grammar, twin, seed)


@pytest.mark.parametrize("order", list(PropertyOrder))
@pytest.mark.parametrize("schema", OF_KEYS, ids=str)
def test_states_before_values_that_are_shared_are_those_of_each_object(schema, order, trie, monkeypatch):
    options = JsonOptions(whitespace=Whitespace.FLEXIBLE, property_order=order)
    grammar = compile_json_schema(schema, options).bind(trie)
    twin = compile_json_schema(schema, options).bind(trie)
    shared = JsonSource._before_value

    def own(source, state, key_class):
        return shared(source, state, key_class) if source is grammar._meter._source else state

    monkeypatch.setattr(JsonSource, "_before_value", own)
    for seed in range(12):
        walk_both(grammar, twin, seed)
