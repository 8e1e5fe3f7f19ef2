from __future__ import annotations

import pytest

from tests.bench.grammar.key_order import KeyOrder
from tests.bench.grammar.tasks import task

AB = {"properties": {"a": {}, "b": {}}}


def arranged(schema, value):
    ordered = KeyOrder(schema).arrange(value)
    assert ordered == value
    return ordered


@pytest.mark.parametrize(
    ("schema", "keys"),
    [
        (AB, ["a", "b", "z", "y"]),
        ({"properties": {"b": True}, "allOf": [AB]}, ["b", "a", "z", "y"]),
        ({"allOf": [AB], "properties": {"b": True}}, ["b", "a", "z", "y"]),
        ({"oneOf": [{"properties": {"y": True}}, AB]}, ["y", "a", "b", "z"]),
        ({"$ref": "#/$defs/ab", "$defs": {"ab": AB}}, ["a", "b", "z", "y"]),
        ({"$ref": "#", "properties": {"b": True}}, ["b", "z", "y", "a"]),
        ({"if": {"properties": {"y": True}}, "then": AB}, ["y", "a", "b", "z"]),
        ({"dependentSchemas": {"z": AB}}, ["a", "b", "z", "y"]),
        ({"dependencies": {"z": ["a"]}}, ["z", "b", "y", "a"]),
        ({"$ref": "other.json"}, ["z", "b", "y", "a"]),
        (True, ["z", "b", "y", "a"]),
    ],
)
def test_declared_keys_come_first_in_their_order(schema, keys):
    assert list(arranged(schema, {"z": 1, "b": 2, "y": 3, "a": 4})) == keys


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"properties": {"x": AB}}, {"x": {"b": 1, "a": 2}}),
        ({"patternProperties": {"^x": AB}}, {"x1": {"b": 1, "a": 2}}),
        ({"patternProperties": {"(": {}, "^x": AB}}, {"x1": {"b": 1, "a": 2}}),
        ({"properties": {"y": {}}, "additionalProperties": AB}, {"x": {"b": 1, "a": 2}}),
        ({"unevaluatedProperties": AB}, {"x": {"b": 1, "a": 2}}),
        ({"items": AB}, [{"b": 1, "a": 2}]),
        ({"items": [AB]}, [{"b": 1, "a": 2}]),
        ({"items": [{}], "additionalItems": AB}, [0, {"b": 1, "a": 2}]),
        ({"prefixItems": [{}], "items": AB}, [0, {"b": 1, "a": 2}]),
        ({"contains": AB}, [0, {"b": 1, "a": 2}]),
        ({"oneOf": [{"type": "string"}, {"items": {"$ref": "#/definitions/a~1b"}}], "definitions": {"a/b": AB}},
         [{"b": 1, "a": 2}]),
    ],
)  # fmt: skip
def test_order_reaches_inside(schema, value):
    assert '"a": 2, "b": 1' in str(arranged(schema, value)).replace("'", '"')


def test_a_task_says_the_value_again_only_where_the_order_differs():
    made = task(
        "x",
        "y",
        AB,
        [
            {"data": {"a": 1, "b": "é"}, "valid": True},
            {"data": {"b": 1, "a": 2}, "valid": True},
            {"data": {"b": 1, "a": 2}, "valid": False},
        ],
    )
    assert [instance.ordered for instance in made.instances] == [None, '{"a": 2, "b": 1}', None]
    assert made.instances[0].text == '{"a": 1, "b": "é"}'
