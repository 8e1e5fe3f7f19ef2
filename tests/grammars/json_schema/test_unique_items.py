"""Arrays without repeats: what counts as one, what is written, and that masks and advances agree."""

from __future__ import annotations

import random

import pytest

from decoding.errors import ConstraintError, GrammarStateError
from grammars.constraint import Whitespace

UNIQUE = {"type": "array", "uniqueItems": True}
RECORDS = {**UNIQUE, "items": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}}


@pytest.mark.parametrize(
    ("schema", "text", "is_legal"),
    [
        (UNIQUE, "[]", True),
        (UNIQUE, '[1,12,true,null,"1",[],[1]]', True),
        (UNIQUE, "[1,2,1]", False),
        (UNIQUE, "[[1,[2]], [1, [ 2 ]]]", False),
        ({**UNIQUE, "items": {"type": "integer"}}, "[10,1,100]", True),
        ({**UNIQUE, "items": {"type": "integer"}}, "[10,1,10]", False),
        ({**UNIQUE, "items": {"type": "string"}}, '["a","ab","abc"]', True),
        ({**UNIQUE, "items": {"type": "string"}}, '["a","ab","a"]', False),
        ({**UNIQUE, "items": {"type": "string"}}, '["a","\\u0061"]', False),
        ({**UNIQUE, "items": {"type": "number"}}, "[1.5,1.25]", True),
        ({**UNIQUE, "items": {"type": "number"}}, "[1.5,1.50]", False),
        ({**UNIQUE, "items": {"enum": [4, 5]}}, "[4,5]", True),
        ({**UNIQUE, "items": {"enum": [4, 5]}}, "[4,4.0]", False),
        ({**UNIQUE, "items": {"enum": ["x", "y"]}, "minItems": 2}, '["y","x"]', True),
        (RECORDS, '[{"a":"x"},{"a":"x","b":1},{"b":1}]', True),
        (RECORDS, '[{"a":"x","b":1},{ "a": "x",\n "b": 1 }]', False),
        ({**UNIQUE, "prefixItems": [{"type": "string"}, {"type": "integer"}]}, '["a",1,"b"]', True),
        ({**UNIQUE, "prefixItems": [{"type": "string"}, {"type": "integer"}]}, '["a",1,"a"]', False),
        ({"properties": {"t": {**UNIQUE, "items": {"$ref": "#"}}}}, '{"t":[{"t":[]},{}]}', True),
        ({"properties": {"t": {**UNIQUE, "items": {"$ref": "#"}}}}, '{"t":[{"t":[]},{"t":[]}]}', False),
    ],
)
def test_which_texts_are_legal(grammar_of, accepts, schema, text, is_legal):
    assert accepts(grammar_of(schema, Whitespace.FLEXIBLE), text) == is_legal


def test_more_items_than_values_are_impossible(grammar_of):
    with pytest.raises(ConstraintError, match="impossible"):
        grammar_of({**UNIQUE, "items": {"enum": ["x", "y"]}, "minItems": 3})


def test_of_objects_without_named_keys_there_is_one(grammar_of, accepts):
    grammar = grammar_of({**UNIQUE, "items": {"type": "object"}})
    assert accepts(grammar, "[{}]")
    assert not accepts(grammar, "[{},{}]")


def test_an_item_that_can_only_repeat_is_not_begun(grammar_of):
    matcher = grammar_of({**UNIQUE, "items": {"enum": ["xa", "xb", "y"]}}).matcher()
    for byte in b'["xa","xb","':
        matcher.advance(byte)
    assert ord("y") in matcher.mask()
    assert ord("x") not in matcher.mask()


def test_where_all_values_are_used_the_array_ends(grammar_of):
    matcher = grammar_of({**UNIQUE, "items": {"type": "boolean"}}).matcher()
    for byte in b"[true,false":
        matcher.advance(byte)
    assert ord(",") not in matcher.mask()
    assert ord("]") in matcher.mask()


@pytest.mark.parametrize(
    "schema",
    [
        UNIQUE,
        RECORDS,
        {**UNIQUE, "items": {"enum": ["a", "ab", "aa", 1, 10, None]}},
        {**UNIQUE, "items": {"type": "integer", "minimum": 0, "maximum": 12}},
        {"patternProperties": {"^(a[ab]|b.*)$": {"type": "null"}}, "additionalProperties": False, "type": "object"},
    ],
    ids=str,
)
def test_a_mask_says_of_every_token_what_an_advance_does(grammar_of, vocabulary, schema):
    grammar = grammar_of(schema, Whitespace.FLEXIBLE)
    draw = random.Random(3)
    for _ in range(12):
        matcher = grammar.matcher()
        for _ in range(14):
            row = matcher.mask()
            for token in range(vocabulary.size):
                assert advances(matcher, token) == (token in row), (token, matcher._position)
            matcher.advance(draw.choice([token for token in range(vocabulary.size) if token in row]))
            if matcher.is_finished:
                break


def advances(matcher, token):
    try:
        matcher.fork().advance(token)
    except GrammarStateError:
        return False
    return True
