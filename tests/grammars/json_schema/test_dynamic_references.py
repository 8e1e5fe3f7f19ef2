"""`$dynamicRef` and `$recursiveRef` mean what was entered first, however many schemas they may mean."""

from __future__ import annotations

import pytest

TREE = {
    "$id": "https://example.com/strict",
    "$dynamicAnchor": "node",
    "$ref": "tree",
    "unevaluatedProperties": False,
    "$defs": {
        "tree": {
            "$id": "https://example.com/tree",
            "$dynamicAnchor": "node",
            "type": "object",
            "properties": {"data": True, "children": {"type": "array", "items": {"$dynamicRef": "#node"}}},
        }
    },
}


@pytest.mark.parametrize(
    ("text", "is_legal"),
    [
        ('{"data":1,"children":[{"children":[]}]}', True),
        ('{"children":[{"daat":1}]}', False),
        ('{"daat":1}', False),
    ],
)
def test_a_tree_is_as_strict_as_what_extends_it(grammar_of, accepts, text, is_legal):
    assert accepts(grammar_of(TREE), text) == is_legal


def test_entered_by_another_way_it_is_not(grammar_of, accepts):
    both = {
        "$id": "https://example.com/both",
        "properties": {"strict": {"$ref": "strict"}, "loose": {"$ref": "tree"}},
        "$defs": {"strict": TREE},
    }
    grammar = grammar_of(both)
    assert accepts(grammar, '{"loose":{"children":[{"daat":1}]}}')
    assert accepts(grammar, '{"strict":{"children":[{"data":1}]}}')
    assert not accepts(grammar, '{"strict":{"children":[{"daat":1}]}}')


def test_a_recursive_reference_means_the_outermost_recursive_anchor(grammar_of, accepts):
    schema = {
        "$schema": "https://json-schema.org/draft/2019-09/schema",
        "$id": "https://example.com/outer",
        "$recursiveAnchor": True,
        "$ref": "inner",
        "maxProperties": 1,
        "$defs": {
            "inner": {
                "$id": "https://example.com/inner",
                "$recursiveAnchor": True,
                "type": "object",
                "additionalProperties": {"$recursiveRef": "#"},
            }
        },
    }
    grammar = grammar_of(schema)
    assert accepts(grammar, '{"a":{"b":{}}}')
    assert not accepts(grammar, '{"a":{"b":{},"c":{}}}')
