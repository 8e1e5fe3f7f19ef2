from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    "schema", [{"type": "integer"}, {"const": 7}, {"enum": [7, "a"]}, {"type": "integer", "minimum": 5, "maximum": 9}]
)
def test_integers_are_spelled_with_a_point_on_request_alone(grammar_of, accepts, schema):
    plain, both = grammar_of(schema, integral_floats=False), grammar_of(schema, integral_floats=True)
    assert accepts(plain, "7")
    assert not accepts(plain, "7.0")
    assert accepts(both, "7")
    assert accepts(both, "7.0")
    assert not accepts(both, "7.5")


def test_what_is_denied_is_denied_in_every_spelling(grammar_of, accepts):
    grammar = grammar_of({"type": "number", "not": {"const": 7}}, integral_floats=False)
    assert accepts(grammar, "8.5")
    assert not accepts(grammar, "7")
    assert not accepts(grammar, "7.0")


def test_draft_4_knows_no_integral_floats(grammar_of, accepts):
    schema = {"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer"}
    assert not accepts(grammar_of(schema, integral_floats=True), "7.0")
