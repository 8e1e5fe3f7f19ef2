"""Random schemas, vocabularies and limits: whatever is drawn, every text is whole in time and valid."""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from decoding.errors import ConstraintError, InvalidRequestError
from grammars.json_schema.compile import JsonOptions, PropertyOrder, compile_json_schema
from grammars.matching.trie import TokenTrie
from grammars.vocabulary import Vocabulary

LONGER = (
    b'"a":',
    b'{"',
    b'"}',
    b"]]",
    b"[[",
    b'","',
    b"},{",
    b"true",
    b"null",
    b"10",
    b'"]',
    b'["',
    b'"b',
    b",0",
    b"aa",
)
NAMES = ("a", "b", "ab")


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    arrays = st.fixed_dictionaries(
        {"type": st.just("array"), "items": inner},
        optional={
            "minItems": st.integers(0, 3),
            "uniqueItems": st.booleans(),
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
        },
    )
    objects = st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(st.sampled_from(NAMES), inner, max_size=2)},
        optional={
            "required": st.lists(st.sampled_from(NAMES), unique=True, max_size=2),
            "minProperties": st.integers(0, 3),
            "additionalProperties": inner | st.booleans(),
        },
    )
    return arrays | objects | st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=2)})


LEAVES: st.SearchStrategy[Any] = st.one_of(
    st.just({"type": "null"}),
    st.just({"type": ["boolean", "integer"]}),
    st.fixed_dictionaries({"type": st.just("integer"), "minimum": st.integers(-5, 200)}),
    st.fixed_dictionaries({"type": st.just("string"), "minLength": st.integers(0, 4)}),
    st.just({"type": "string", "pattern": "^(ab)+$"}),
    st.fixed_dictionaries({"enum": st.lists(st.sampled_from(["a", "ab", 1, [0], None]), min_size=1, max_size=3)}),
)
SCHEMAS = st.recursive(LEAVES, containers, max_leaves=5)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(schema=SCHEMAS, longer=st.sets(st.sampled_from(LONGER)), more=st.integers(0, 12), seed=st.integers(0, 1 << 30))
def test_every_text_is_whole_in_time(schema: Any, longer: set[bytes], more: int, seed: int) -> None:
    tokens = (*(bytes((byte,)) for byte in range(256)), *sorted(longer), b"")
    eos = len(tokens) - 1
    vocabulary = Vocabulary(tokens=tokens, special_ids=frozenset({eos}), eos_ids=(eos,), size=len(tokens) + 3)
    try:
        constraint = compile_json_schema(schema, JsonOptions(property_order=PropertyOrder.ANY))
    except ConstraintError:
        return  # nothing fits it, or it is refused by name
    grammar = constraint.bind(TokenTrie.of(vocabulary))
    shortest = grammar.shortest_text()
    assert shortest is not None
    Draft202012Validator(schema).validate(json.loads(shortest))
    limit = len(shortest) + more
    draw = random.Random(seed)
    while True:  # down to the first limit that is refused
        try:
            matcher = grammar.finishing(limit)
        except InvalidRequestError:
            break
        drawn: list[int] = []
        while len(drawn) < limit and not matcher.only_end():
            row = matcher.mask()
            legal = [token for token in range(eos) if token in row]
            if not legal:
                break
            opening = [token for token in legal if tokens[token][:1] in b'{["'] or legal
            drawn.append(draw.choice(opening if draw.random() < 0.5 else legal))
            matcher.advance(drawn[-1])
        assert matcher.is_accepting
        Draft202012Validator(schema).validate(json.loads(vocabulary.join(drawn)))
        limit = limit * 3 // 4
    assert limit < len(shortest)
