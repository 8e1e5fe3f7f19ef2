"""After warming up, no compiled loop is loaded any more, and vocabularies that cannot spell JSON do no harm."""

from __future__ import annotations

import json

import pytest

from decoding.errors import GrammarStateError
from grammars.json_schema.compile import JsonOptions, compile_json_schema
from grammars.matching import walk
from grammars.matching.trie import TokenTrie
from grammars.regular import formats
from grammars.vocabulary import Vocabulary
from grammars.warm_up import FORMATS, SCHEMA, TEXTS, warm_up


def trie_of(texts):
    return TokenTrie.of(
        Vocabulary(tokens=(b"", *texts), special_ids=frozenset((0,)), eos_ids=(0,), size=len(texts) + 1)
    )


def loops():
    return {name: value for name, value in vars(walk).items() if hasattr(value, "signatures") and name[0] != "_"}


def test_every_loop_is_called(monkeypatch):
    called = set()
    for name, loop in loops().items():
        for module in ("automaton", "masks", "rows", "trie", "lengths"):
            path = f"grammars.matching.{module}.{name}"

            def spy(*arguments, name=name, loop=loop):
                called.add(name)
                return loop(*arguments)

            try:
                monkeypatch.setattr(path, spy)
            except AttributeError:
                continue
    warm_up(trie_of([bytes((byte,)) for byte in range(256)]))
    assert called == set(loops())


@pytest.mark.parametrize("texts", [[b"a"], [b"{", b'"']])
def test_a_vocabulary_that_cannot_spell_json_does_no_harm(texts):
    warm_up(trie_of(texts))


@pytest.mark.parametrize("text", TEXTS)
def test_the_texts_are_legal_beginnings(text):
    grammar = compile_json_schema(SCHEMA, JsonOptions()).bind(trie_of([bytes((byte,)) for byte in range(256)]))
    assert grammar.row_after(text).num_legal
    with pytest.raises(GrammarStateError, match="no text begins"):
        grammar.row_after(text + b"\x00")


def test_every_format_has_an_example():
    trie = trie_of([bytes((byte,)) for byte in range(256)])
    assert set(FORMATS) == formats.FORMATS
    for name, example in FORMATS.items():
        schema = json.dumps({"type": "string", "format": name})
        grammar = compile_json_schema(schema, JsonOptions()).bind(trie)
        assert 0 in grammar.row_after(json.dumps(example).encode())
