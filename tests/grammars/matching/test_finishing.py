"""With a limit, every text that the masks lead to is whole within it, whatever is drawn."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from decoding.errors import InvalidRequestError
from decoding.masks import MaskRow
from decoding.tree import DraftTree
from grammars.choices import compile_choices
from grammars.json_schema.compile import JsonOptions, PropertyOrder, compile_json_schema
from grammars.matching.compile import compile_regex
from grammars.matching.constraint import LazyGrammar
from grammars.matching.fewest import fewest_tokens
from grammars.matching.trie import TokenTrie
from grammars.protocol import Matcher
from grammars.tree_walk import legal_nodes, masks
from grammars.vocabulary import Vocabulary

OBJECT = {"type": "object"}
UNIQUE = {"type": "array", "uniqueItems": True}
SCHEMAS: tuple[Any, ...] = (
    True,
    {"type": "integer", "minimum": 1000},
    {"type": "string", "minLength": 4, "maxLength": 20},
    {"type": "array", "minItems": 2, "items": {"type": "object", "required": ["aaa", "bbb"]}},
    {
        "$defs": {
            "node": {
                "properties": {"v": {"type": "integer"}, "n": {"$ref": "#/$defs/node"}},
                "additionalProperties": False,
                "required": ["v"],
                "type": "object",
            }
        },
        "$ref": "#/$defs/node",
    },
    {"type": "object", "minProperties": 3},
    {
        "type": "object",
        "patternProperties": {"^(aa)+$": {"type": "null"}},
        "additionalProperties": False,
        "minProperties": 3,
    },
    {"type": "array", "uniqueItems": True, "minItems": 4, "items": {"type": "string"}},
    {"type": "array", "uniqueItems": True, "minItems": 3, "items": {"type": "array", "items": {"enum": [0, 10]}}},
    {"type": "array", "uniqueItems": True, "minItems": 3, "items": {"enum": ["a", "ab", "abc", 1]}},
    {
        "type": "array",
        "uniqueItems": True,
        "items": {"type": "array", "uniqueItems": True, "minItems": 2},
        "minItems": 2,
    },
)


def grammar_of(schema: Any, trie: TokenTrie) -> LazyGrammar:
    return compile_json_schema(schema, JsonOptions(property_order=PropertyOrder.ANY)).bind(trie)


def least_limit(grammar: LazyGrammar) -> int:
    """The smallest limit that is not refused, as the refusal of a smaller one names it."""
    with pytest.raises(InvalidRequestError, match=r"takes \d+ tokens") as refusal:
        grammar.finishing(0)
    assert refusal.value.field == "sampling.max_tokens"
    found = re.search(r"takes (\d+) tokens", refusal.value.message)
    assert found is not None
    with pytest.raises(InvalidRequestError):
        grammar.finishing(int(found[1]) - 1)
    return int(found[1])


def drawn(matcher: Matcher, vocabulary: Vocabulary, limit: int, draw: random.Random) -> list[int]:
    """Tokens at random, those that open brackets and words before others, and never the end while there is more."""
    tokens: list[int] = []
    while len(tokens) < limit and not matcher.only_end():
        row = matcher.mask()
        legal = [token for token in range(vocabulary.size) if token in row]
        assert legal
        more = [token for token in legal if token not in vocabulary.eos_ids] or legal
        greedy = [token for token in more if vocabulary.tokens[token][:1] in b'{["ab01'] or more
        token = draw.choice(greedy if draw.random() < 0.6 else more)
        matcher.advance(token)
        if matcher.is_finished:
            break
        tokens.append(token)
    return tokens


@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
def test_every_text_is_whole_within_the_limit(schema: Any, trie: TokenTrie, seeded: random.Random) -> None:
    grammar = grammar_of(schema, trie)
    least = least_limit(grammar)
    for limit in (least, least + 1, least + 4, least + 15):
        for _ in range(3):
            matcher = grammar.finishing(limit)
            tokens = drawn(matcher, trie.vocabulary, limit, seeded)
            assert len(tokens) <= limit
            assert matcher.is_accepting or matcher.is_finished
            Draft202012Validator(schema).validate(json.loads(trie.vocabulary.join(tokens)))


@pytest.fixture
def seeded(request: pytest.FixtureRequest) -> random.Random:
    return random.Random(request.node.name)


def test_patterns_and_choices_too(trie: TokenTrie, seeded: random.Random) -> None:
    for grammar in (
        compile_regex("(ab|a{7}){2,}c?").bind(trie),
        compile_regex("[^a]*aaaa").bind(trie),
        compile_choices(("true", "truetrue", "a,b" * 40)).bind(trie),
    ):
        least = least_limit(grammar)
        for limit in (least, least + 1, least + 9):
            matcher = grammar.finishing(limit)
            drawn(matcher, trie.vocabulary, limit, seeded)
            assert matcher.is_accepting or matcher.is_finished


def test_the_least_limit_counts_tokens_and_not_bytes(trie: TokenTrie) -> None:
    assert least_limit(compile_choices(("truetruetrue",)).bind(trie)) == 3
    with pytest.raises(InvalidRequestError, match="takes 3 tokens"):
        compile_choices(("truetruetrue",)).bind(trie).finishing(2)


def test_far_from_the_limit_rows_are_those_of_the_grammar(trie: TokenTrie, seeded: random.Random) -> None:
    for schema in SCHEMAS:
        grammar = grammar_of(schema, trie)
        free, bounded = grammar.matcher(), grammar.finishing(500)
        for _ in range(12):
            assert _bits(bounded.mask()) == _bits(free.mask())
            if free.only_end():
                break
            row = free.mask()
            more = [t for t in range(trie.vocabulary.num_tokens) if t in row and t not in trie.vocabulary.eos_ids]
            token = seeded.choice(more)
            free.advance(token)
            bounded.advance(token)


def brute_force(grammar: LazyGrammar, vocabulary: Vocabulary, matcher: Matcher, left: int) -> bool:
    """Whether some tokens complete the text, by trying all."""
    if matcher.is_accepting or matcher.is_finished:
        return True
    if left == 0:
        return False
    row = matcher.mask()
    for token in range(vocabulary.num_tokens):
        if token in row:
            matcher.advance(token)
            found = brute_force(grammar, vocabulary, matcher, left - 1)
            matcher.rollback(1)
            if found:
                return True
    return False


@pytest.mark.parametrize(
    "schema",
    [{"type": "array", "uniqueItems": True, "minItems": 2, "items": {"enum": [0, 1, 11]}}, {"enum": ["ab", [0, 1]]}],
)
def test_allowed_tokens_are_those_that_can_be_completed(schema: Any, seeded: random.Random) -> None:
    """With a token for every byte and no other, the bound is exact: no token is lost, none too many."""
    pieces = [bytes((byte,)) for byte in b'[],"ab01{}:-.+eEtrufalsn\\ "/b0123456789ABCDEFcd']
    pieces = list(dict.fromkeys(pieces))
    eos = len(pieces)
    vocabulary = Vocabulary(tokens=(*pieces, b""), special_ids=frozenset({eos}), eos_ids=(eos,), size=eos + 1)
    grammar = grammar_of(schema, TokenTrie.of(vocabulary))
    for limit in (5, 6, 7):
        matcher, free = grammar.finishing(limit), grammar.matcher()
        for left in range(limit, 0, -1):
            if free.only_end():
                break
            row, plain = matcher.mask(), free.mask()
            legal = [token for token in range(vocabulary.size) if token in plain and token != eos]
            for token in legal:
                free.advance(token)
                assert (token in row) == brute_force(grammar, vocabulary, free, left - 1)
                free.rollback(1)
            token = seeded.choice([token for token in legal if token in row])
            matcher.advance(token)
            free.advance(token)


def test_a_tree_of_guesses_has_the_rows_of_its_paths(trie: TokenTrie, seeded: random.Random) -> None:
    """Rows at the nodes of a tree are those of matchers that walk there, and the matcher is left as it was."""
    grammar = grammar_of(SCHEMAS[3], trie)
    for limit in (least_limit(grammar) + 1, least_limit(grammar) + 4):
        matcher = grammar.finishing(limit)
        path = drawn(matcher.fork(), trie.vocabulary, limit, seeded)[:6]
        other = drawn(matcher.fork(), trie.vocabulary, limit, seeded)[:4]
        tree = DraftTree(
            tokens=(0, *path, *other),
            parents=(-1, *range(len(path)), 0, *range(len(path) + 1, len(path) + len(other))),
        )
        assert legal_nodes(matcher, tree) == list(range(len(tree)))
        rows = masks(matcher, tree)
        walked = [matcher.fork()]
        for node in range(1, len(tree)):
            copy = walked[tree.parents[node]].fork()
            copy.advance(tree.tokens[node])
            walked.append(copy)
        for row, there in zip(rows, walked, strict=True):
            assert row is not None
            assert _bits(row) == _bits(there.mask())
        assert _bits(matcher.mask()) == _bits(grammar.finishing(limit).mask())


def test_fewest_tokens_against_search(trie: TokenTrie, seeded: random.Random) -> None:
    def fewest(text: bytes) -> int:
        reached, steps = {0}, 0
        while len(text) not in reached:
            steps += 1
            reached = {
                at + len(token)
                for at in reached
                for token in trie.vocabulary.tokens
                if token and text.startswith(token, at)
            }
        return steps

    for _ in range(60):
        text = bytes(seeded.choices(b'{"a":,}b10 true', k=seeded.randrange(1, 14)))
        found = fewest_tokens(trie, text)
        assert found is not None
        assert trie.vocabulary.join(found) == text
        assert len(found) == fewest(text)
    assert fewest_tokens(TokenTrie.of(_without(trie.vocabulary, b"a")), b"xay") is None


def _without(vocabulary: Vocabulary, token: bytes) -> Vocabulary:
    return Vocabulary(
        tokens=tuple(b"" if token in text else text for text in vocabulary.tokens),
        special_ids=vocabulary.special_ids,
        eos_ids=vocabulary.eos_ids,
        size=vocabulary.size,
    )


def _bits(row: MaskRow) -> bytes:
    return row.bits_W.tobytes()


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"const": "ab"}, r"the shortest text in bytes takes \d+ tokens; raise it"),
        (
            UNIQUE | {"minItems": 2},
            r"the shortest text found takes \d+ tokens, one of other items or keys may take fewer",
        ),
    ],
    ids=str,
)
def test_a_refusal_claims_no_more_than_was_found(schema: Any, message: str, trie: TokenTrie) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        grammar_of(schema, trie).finishing(1)
