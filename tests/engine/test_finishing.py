"""Requests that must be whole within max_tokens, on the engine: samples, speculation, preemption."""

from __future__ import annotations

import json

import pytest

from decoding.errors import InvalidRequestError
from decoding.finish import FinishReason
from grammars.json_schema.compile import JsonOptions, compile_json_schema
from grammars.matching.trie import TokenTrie
from grammars.vocabulary import Vocabulary

PIECES = (
    *(bytes((byte,)) for byte in b'[],"ab12{}:'),
    *(b'["', b'","', b'"]', b"[1", b"1,", b"]]", b'":'),
)
SHORT_OR_LONG = {"enum": [1, [2, 2, 2]]}
CLOSED = {"additionalProperties": False}
SCHEMAS = (
    {"type": "array", "items": {"type": "array", "minItems": 2, "items": {"enum": [1, 2, "ab"]}}},
    {"type": "array", "uniqueItems": True, "minItems": 3, "items": {"enum": ["a", "b", "ab", 1, [2, 2]]}},
    {"type": "object", "minProperties": 2, "properties": dict.fromkeys(("a", "b", "ab"), SHORT_OR_LONG), **CLOSED},
)


@pytest.fixture(scope="module")
def trie(toy) -> TokenTrie:
    tokens = (b"", b"", *PIECES)
    return TokenTrie.of(
        Vocabulary(tokens=tokens, special_ids=frozenset({0, toy.EOS}), eos_ids=(toy.EOS,), size=toy.VOCAB)
    )


@pytest.mark.parametrize("temperature", [0.0, 1.5])
@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
def test_every_sample_is_whole_whatever_is_guessed(toy, trie, schema, temperature):
    grammar = compile_json_schema(schema, JsonOptions()).bind(trie)
    for limit in (10, 12, 16):
        params = {"max_tokens": limit, "temperature": temperature, "finish_within_limit": True}
        requests = [toy.request(f"r{seed}", seed, 5, n=3, grammar=grammar, params=params) for seed in range(4)]
        plain = [[toy.alone(request, index) for index in range(3)] for request in requests]
        answers = {request.prompt: list(rows[0]) for request, rows in zip(requests, plain, strict=True)}
        for drafter in (None, toy.RandomDrafter(limit, answers)):
            engine = toy.engine(drafter, kv_cache_tokens=320)
            for request in requests:
                engine.submit(request)
            results = toy.run(engine)
            for request, rows in zip(requests, plain, strict=True):
                for index, tokens in enumerate(rows):
                    result = results[request.request_id, index]
                    assert result.tokens == tokens
                    assert result.finish.constraint_complete
                    assert result.finish.reason in (FinishReason.EOS, FinishReason.GRAMMAR_END, FinishReason.LENGTH)
                    json.loads(trie.vocabulary.join(tokens))


def test_what_cannot_be_promised_is_refused_by_name(toy, trie):
    grammar = compile_json_schema({"const": "abab"}, JsonOptions()).bind(trie)
    with pytest.raises(InvalidRequestError, match=r"^sampling.max_tokens: 5 tokens .* takes 6 tokens"):
        toy.engine().submit(
            toy.request("r", 1, 3, grammar=grammar, params={"max_tokens": 5, "finish_within_limit": True})
        )
    with pytest.raises(InvalidRequestError, match=r"^sampling.finish_within_limit: needs a constraint"):
        toy.engine().submit(toy.request("r", 1, 3, params={"finish_within_limit": True}))
    with pytest.raises(InvalidRequestError, match=r"^sampling.finish_within_limit: .*bad_words"):
        toy.request("r", 1, 3, grammar=grammar, params={"bad_words": ((4,),), "finish_within_limit": True})
