"""What constraints mean: keywords, and a shortest example that validates."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from grammars.compiling.explain import explain_constraint
from grammars.compiling.pool import CompilePool, PoolOptions
from grammars.compiling.result import Explanation
from grammars.constraint import ConstraintKind, ConstraintSpec
from grammars.limits import ConstraintLimits
from grammars.matching.trie import TokenTrie

SCHEMAS: tuple[tuple[Any, str], ...] = (
    ({"type": "object", "required": ["a"], "properties": {"a": {"minLength": 2, "type": "string"}}}, '{"a":"  "}'),
    ({"type": "array", "uniqueItems": True, "minItems": 3, "items": {"type": "string"}}, '["","0","1"]'),
    ({"type": "array", "uniqueItems": True, "minItems": 3, "items": {"type": "integer"}}, "[0,1,2]"),
    ({"type": "object", "minProperties": 2}, '{"":0,"x":0}'),
    ({"contains": {"const": 1}, "minContains": 2, "type": "array"}, "[1,1]"),
    ({"if": {"type": "integer"}, "then": {"minimum": 10}, "else": False}, "10"),
)


def explained(trie: TokenTrie, kind: ConstraintKind, text: str = "", values: tuple[str, ...] = ()) -> Explanation:
    spec = ConstraintSpec(kind=kind, text=text, values=values)
    return explain_constraint(spec, trie, limits=ConstraintLimits(), backend="espalier")


@pytest.mark.parametrize(("schema", "as_short_as"), SCHEMAS, ids=lambda case: json.dumps(case))
def test_the_example_is_valid_and_as_short_as_one_by_hand(schema: Any, as_short_as: str, trie: TokenTrie) -> None:
    found = explained(trie, ConstraintKind.JSON_SCHEMA, json.dumps(schema))
    assert found.shortest is not None
    Draft202012Validator(schema).validate(json.loads(found.shortest))
    Draft202012Validator(schema).validate(json.loads(as_short_as))
    assert len(found.shortest.encode()) == len(as_short_as.encode())
    assert found.shortest_tokens is not None
    assert 0 < found.shortest_tokens <= len(found.shortest.encode())


def test_keywords_are_told_with_their_pointers(trie: TokenTrie) -> None:
    schema = {
        "$defs": {"n": {"minimum": 1}, "unused": {"maximum": 1}},
        "properties": {"a/b": {"$ref": "#/$defs/n", "format": "made-up"}},
        "if": {"required": ["c"]},
        "then": {"maxProperties": 3},
        "title": "t",
        "x": 1,
    }
    found = explained(trie, ConstraintKind.JSON_SCHEMA, json.dumps(schema, indent=1))
    assert json.loads(found.normalised) == schema
    assert " " not in found.normalised
    assert {item.pointer for item in found.enforced} == {
        "/properties", "/if", "/then", "/if/required", "/then/maxProperties",
        "/properties/a~1b/$ref", "/$defs/n/minimum",
    }  # fmt: skip
    assert {item.pointer for item in found.unenforced} == {"/x", "/properties/a~1b/format"}


def test_other_kinds(trie: TokenTrie) -> None:
    regex = explained(trie, ConstraintKind.REGEX, "a{3}|true")
    assert (regex.normalised, regex.shortest, regex.shortest_tokens, regex.enforced) == ("a{3}|true", "aaa", 2, ())
    choices = explained(trie, ConstraintKind.CHOICES, values=("no", "yes", "é"))
    assert (choices.normalised, choices.shortest) == ('["no","yes","é"]', "no")
    anything = explained(trie, ConstraintKind.JSON_OBJECT)
    assert (anything.normalised, anything.shortest) == ('{"type":"object"}', "{}")
    grammar = explained(trie, ConstraintKind.GRAMMAR, "@json")
    assert (grammar.normalised, grammar.shortest, grammar.shortest_tokens) == ("@json", None, None)


async def test_the_pool_explains_in_its_workers_and_keeps_what_they_said(trie: TokenTrie) -> None:
    spec = ConstraintSpec(kind=ConstraintKind.REGEX, text="a{3}")
    async with CompilePool(trie, PoolOptions(workers=1)) as pool:
        found = await pool.explain(spec)
        assert found.shortest == "aaa"
        assert await pool.explain(spec) is found
        assert pool.lookup(pool.key(spec)) is None
        assert (await pool.compile(spec)).key == pool.key(spec)
