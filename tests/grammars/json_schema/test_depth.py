"""Texts that nest as deep as masks let them can always be completed."""

from __future__ import annotations

import json

import jsonschema_rs
import pytest

from decoding.errors import UnsupportedConstraintError
from grammars.constraint import Whitespace
from grammars.json_schema.compile import JsonOptions, compile_json_schema
from grammars.json_schema.shallow import LEVELS
from grammars.matching.automaton import DEEP, MAX_DEPTH

NULL = {"type": "null"}
OR_NULL = {"anyOf": [{"$ref": "#"}, NULL]}
RECURSIVE = [
    ({"type": "object", "properties": {"a": {"$ref": "#"}}, "additionalProperties": False}, b'{"a":'),
    ({"type": "array", "items": {"$ref": "#"}}, b"["),
    ({"anyOf": [{"type": "array", "items": {"$ref": "#"}, "minItems": 1}, NULL]}, b"["),
    ({"type": "object", "properties": {"l": OR_NULL, "r": OR_NULL}, "required": ["l", "r"]}, b'{"l":'),
    (
        {
            "type": "object",
            "patternProperties": {"^[ab]+$": {"$ref": "#"}},
            "additionalProperties": False,
            "maxProperties": 2,
        },
        b'{"b":',
    ),
    ({"oneOf": [{"type": "array", "items": {"$ref": "#"}, "contains": NULL}, NULL]}, b"["),
]


@pytest.mark.parametrize(("schema", "opening"), RECURSIVE, ids=str)
@pytest.mark.parametrize("whitespace", [Whitespace.COMPACT, Whitespace.FLEXIBLE])
def test_from_the_deepest_place_a_text_comes_to_its_end(grammar_of, schema, opening, whitespace):
    matcher = grammar_of(schema, whitespace).matcher()
    levels, text = 0, b""
    while levels <= MAX_DEPTH and (more := written(matcher, opening)) == opening:
        levels += 1
        text += more
    assert DEEP <= levels <= DEEP + LEVELS + 1
    text += more + closed(matcher)
    assert text.count(b"[") + text.count(b"{") >= levels
    assert (text.count(b"["), text.count(b"{")) == (text.count(b"]"), text.count(b"}"))


def written(matcher, text):
    """As much of the beginning of ``text`` as the masks allow."""
    for place, byte in enumerate(text):
        if byte not in matcher.mask():
            return text[:place]
        matcher.advance(byte)
    return text


def closed(matcher):
    """A way to the end, by what closes before all else."""
    text = b""
    while not matcher.is_accepting:
        assert len(text) < 20_000, text[-100:]
        row = matcher.mask()
        byte = next(byte for byte in b']}",:nulrkix[{' if byte in row)
        matcher.advance(byte)
        text += bytes((byte,))
    return text


@pytest.mark.parametrize(("schema", "opening"), RECURSIVE, ids=str)
def test_near_that_place_the_text_is_still_valid(grammar_of, schema, opening, monkeypatch):
    monkeypatch.setattr("grammars.matching.automaton.DEEP", 4)
    monkeypatch.setattr("grammars.json_schema.shallow.LEVELS", 3)
    matcher = grammar_of(schema).matcher()
    text = b""
    while (more := written(matcher, opening)) == opening:
        text += more
    value = json.loads(text + more + closed(matcher))
    assert jsonschema_rs.is_valid(schema, value), text


def test_a_recursive_schema_that_only_deep_values_meet_is_refused():
    defs = {
        str(index): {"type": "array", "items": {"$ref": f"#/$defs/{index + 1}"}, "minItems": 1}
        for index in range(LEVELS + 9)
    }
    defs[str(len(defs))] = {"anyOf": [NULL, {"type": "array", "items": {"$ref": "#/$defs/0"}}]}
    with pytest.raises(UnsupportedConstraintError, match="levels of nesting") as caught:
        compile_json_schema({"$defs": defs, "$ref": "#/$defs/0"}, JsonOptions())
    assert not caught.value.pointer
