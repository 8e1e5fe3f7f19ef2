"""Shortest completions against breadth-first search over configurations, byte by byte."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from grammars.constraint import Whitespace
from grammars.json_schema.compile import JsonOptions, PropertyOrder, compile_json_schema
from grammars.matching.automaton import Configuration, PushdownAutomaton
from grammars.matching.compile import compile_regex
from grammars.matching.constraint import CompiledConstraint
from grammars.matching.shortest import Shortest
from grammars.matching.trie import TokenTrie

SCHEMAS: tuple[Any, ...] = (
    True,
    {"type": "integer", "minimum": 100},
    {"type": "number", "exclusiveMinimum": 0.5, "exclusiveMaximum": 0.6},
    {"type": "string", "minLength": 3},
    {"type": "string", "pattern": "^(ab|c)+d?$"},
    {"enum": ["abc", [1, 2], {"a": 1}]},
    {"type": "array", "minItems": 3, "items": {"type": ["integer", "boolean"]}},
    {"type": "array", "prefixItems": [{"const": 12}, {"type": "string"}], "minItems": 2},
    {"type": "array", "contains": {"type": "object", "required": ["k"]}, "maxItems": 3},
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "null"}}, "required": ["b"]},
    {"type": "object", "properties": {"a": {"const": 1}, "b": {"minLength": 9, "type": "string"}}, "minProperties": 1},
    {
        "type": "object",
        "required": ["kind"],
        "properties": {"kind": {"enum": ["x", "y"]}},
        "if": {"properties": {"kind": {"const": "x"}}},
        "then": {"required": ["long_name"]},
        "else": {"required": ["n"]},
    },
    {
        "$defs": {
            "tree": {"type": "array", "minItems": 1, "items": {"anyOf": [{"$ref": "#/$defs/tree"}, {"const": 7}]}}
        },
        "$ref": "#/$defs/tree",
    },
    {
        "$defs": {"n": {"properties": {"next": {"$ref": "#/$defs/n"}}, "type": "object", "maxProperties": 1}},
        "$ref": "#/$defs/n",
    },
    {"not": {"type": ["null", "boolean", "number", "array"]}, "minLength": 1, "required": ["a"]},
)


def breadth_first(automaton: PushdownAutomaton, start: Configuration) -> int:
    """The length of a shortest completion, by trying every byte everywhere."""
    frontier, seen, length = [start], {start}, 0
    while True:
        if any(automaton.is_accepting(configuration) for configuration in frontier):
            return length
        longer = []
        for configuration in frontier:
            for byte in automaton.live_bytes(configuration):
                after = automaton.read(configuration, bytes((byte,)), [])
                if after is not None and after not in seen:
                    seen.add(after)
                    longer.append(after)
        frontier, length = longer, length + 1


def check_along(automaton: PushdownAutomaton, shortest: Shortest, text: bytes) -> None:
    """From every prefix of a text the found completion completes, and none is shorter."""
    for upto in range(len(text) + 1):
        configuration = automaton.read(automaton.start, text[:upto], [])
        assert configuration is not None
        found = shortest.text(configuration)
        end = automaton.read(configuration, found, [])
        assert end is not None
        assert automaton.is_accepting(end)
        assert len(found) == breadth_first(automaton, configuration)


def prepared(constraint: CompiledConstraint, trie: TokenTrie) -> tuple[PushdownAutomaton, Shortest]:
    automaton = PushdownAutomaton(constraint.language.source(), trie)
    return automaton, Shortest(automaton)


@pytest.mark.parametrize("whitespace", [Whitespace.COMPACT, Whitespace.FLEXIBLE])
@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
def test_no_completion_is_shorter(schema: Any, whitespace: Whitespace, trie: TokenTrie) -> None:
    options = JsonOptions(whitespace=whitespace, property_order=PropertyOrder.ANY)
    automaton, shortest = prepared(compile_json_schema(schema, options), trie)
    text = shortest.text(automaton.start)
    Draft202012Validator(schema).validate(json.loads(text))
    check_along(automaton, shortest, text)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (
            {"type": "array", "items": {"type": "object", "required": ["aaa", "b"]}, "maxItems": 2},
            b'[{"aaa":[{"x":1}],"b":2},',
        ),
        ({"type": "object", "patternProperties": {"^a": {"type": "array", "minItems": 2}}}, b'{"b":"x","ab":[1e5,-0.'),
        ({"type": "string", "minLength": 5, "maxLength": 40}, b'"\\u00e9\xc3\xa9\\ud83d\\ude00x'),
        ({"type": "number", "multipleOf": 0.25, "minimum": -3}, b"-2.7"),
    ],
)
def test_completions_from_the_middle_of_texts(schema: Any, text: bytes, trie: TokenTrie) -> None:
    check_along(*prepared(compile_json_schema(schema, JsonOptions(property_order=PropertyOrder.ANY)), trie), text)


@pytest.mark.parametrize("pattern", ["a{5,}b", "(?:ab|a)+(?=.{3}$)...", "[^a]{2}é+", "(?!aa)a*(?:b|aaaa)"])
def test_patterns(pattern: str, trie: TokenTrie) -> None:
    automaton, shortest = prepared(compile_regex(pattern), trie)
    check_along(automaton, shortest, shortest.text(automaton.start))


@pytest.mark.parametrize("name", ["date-time", "time", "date", "uuid", "duration", "email", "ipv6", "uri"])
def test_one_of_many_equally_short_texts_is_found_without_the_others(name: str, trie: TokenTrie) -> None:
    """A leap second comes at one time of day in each offset, so that times have tens of thousands of states."""
    automaton, shortest = prepared(compile_json_schema({"format": name, "type": "string"}, JsonOptions()), trie)
    text = shortest.text(automaton.start)
    end = automaton.read(automaton.start, text, [])
    assert end is not None
    assert automaton.is_accepting(end)
    assert automaton.tables.num_states < 600


def test_deep_stacks_are_no_recursion(trie: TokenTrie) -> None:
    schema = {"$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}, "$ref": "#/$defs/t"}
    automaton, shortest = prepared(compile_json_schema(schema, JsonOptions()), trie)
    configuration = automaton.read(automaton.start, b"[" * 900, [])
    assert configuration is not None
    assert shortest.text(configuration) == b"]" * 900


def test_calls_are_found_once(trie: TokenTrie) -> None:
    """Many required members of one kind cost what one of them costs, not a product."""
    item = {"anyOf": [{"type": "array", "minItems": 2, "items": {"$ref": "#/$defs/v"}}, {"const": 1}]}
    names = [f"key{index}" for index in range(60)]
    schema = {"$defs": {"v": item}, "required": names, "properties": {n: {"$ref": "#/$defs/v"} for n in names}}
    automaton, shortest = prepared(compile_json_schema({"type": "object", **schema}, JsonOptions()), trie)
    text = shortest.text(automaton.start)
    assert json.loads(text) == dict.fromkeys(names, 1)
    assert shortest.num_places < 40 * len(names)
