"""Remembered positions answer as fresh ones, are shared by samples, and are let go of past their bounds."""

from __future__ import annotations

import random

import pytest

from grammars.json_schema.compile import JsonOptions, compile_json_schema
from grammars.matching import positions
from grammars.matching.trie import TokenTrie
from grammars.vocabulary import Vocabulary

SCHEMA = '{"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}}, "maxProperties": 3}'


@pytest.fixture(scope="module")
def trie():
    words = [bytes((byte,)) for byte in range(32, 127)] + [b'":', b'{"', b'"a', b"12", b', "', b"]}"]
    return TokenTrie.of(Vocabulary(tokens=(*words, b""), special_ids=frozenset((101,)), eos_ids=(101,), size=110))


@pytest.fixture
def grammar(trie):
    return compile_json_schema(SCHEMA, JsonOptions()).bind(trie)


def walk(matcher, draw, steps):
    """Tokens and rows of a random walk."""
    tokens, rows = [], []
    for _ in range(steps):
        row = matcher.mask()
        rows.append(row)
        token = draw.choice([token for token in range(110) if token in row])
        matcher.advance(token)
        tokens.append(token)
        if matcher.is_finished:
            break
    return tokens, rows


def test_a_second_sample_gets_the_same_rows_without_looking_for_them(grammar, monkeypatch):
    tokens, rows = walk(grammar.matcher(), random.Random(1), 60)
    monkeypatch.setattr(grammar._positions, "row", None)
    monkeypatch.setattr(grammar._positions, "read", None)
    again = grammar.matcher()
    for token, row in zip(tokens, rows, strict=True):
        assert again.mask() is row
        again.advance(token)


@pytest.mark.parametrize("bound", [2, 7, 1000])
def test_rows_do_not_depend_on_what_is_remembered(trie, monkeypatch, bound):
    """Against a grammar that remembers nothing at all."""
    monkeypatch.setattr(positions, "MAX_POSITIONS", bound)
    remembering = compile_json_schema(SCHEMA, JsonOptions()).bind(trie)
    for seed in range(12):
        tokens, rows = walk(remembering.matcher(), random.Random(seed), 80)
        assert len(remembering._positions._known) <= bound
        twin = compile_json_schema(SCHEMA, JsonOptions()).bind(trie).matcher()
        for token, row in zip(tokens, rows, strict=True):
            assert twin.mask().bits_W.tobytes() == row.bits_W.tobytes()
            twin.advance(token)


def test_rows_that_were_dropped_do_not_live_on_in_positions(trie):
    grammar = compile_json_schema(SCHEMA, JsonOptions()).bind(trie)
    grammar._masks._rows._max_bytes = 5 * 16
    for seed in range(12):
        walk(grammar.matcher(), random.Random(seed), 80)
        held = {id(position.row) for position in grammar._positions._known.values() if position.row is not None}
        cut = sum(1 for position in grammar._positions._known.values() if position.memory.frames)
        assert len(held) <= 5 + cut


def test_positions_with_much_to_remember_are_not_kept(trie, monkeypatch):
    monkeypatch.setattr(positions, "MAX_WEIGHT", 0)
    grammar = compile_json_schema(SCHEMA, JsonOptions()).bind(trie)
    for seed in range(12):
        walk(grammar.matcher(), random.Random(seed), 80)
    assert all(position.memory.weight == 0 for position in grammar._positions._known.values())
