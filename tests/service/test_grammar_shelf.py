from __future__ import annotations

import pytest

from decoding.errors import EspalierError
from grammars.matching.compile import compile_regex
from grammars.matching.trie import TokenTrie
from grammars.vocabulary import Vocabulary
from service.grammar_shelf import GrammarShelf

LETTERS = [bytes([code]) for code in range(97, 123)]


@pytest.fixture(scope="module")
def trie() -> TokenTrie:
    tokens = (b"", *LETTERS)
    return TokenTrie.of(Vocabulary(tokens=tokens, special_ids=frozenset({0}), eos_ids=(0,), size=len(tokens)))


def walk(grammar, steps: int) -> None:
    matcher = grammar.matcher()
    for step in range(steps):
        matcher.mask()
        matcher.advance(1 + step % 2)


def test_what_idle_grammars_built_is_dropped_oldest_first(trie):
    shelf = GrammarShelf()
    grammars = {name: compile_regex(f"[a-z]{{{400 + index}}}{name}").bind(trie) for index, name in enumerate("abc")}
    for name, grammar in grammars.items():
        shelf.put(name, grammar)
    start = {name: grammar.num_bytes for name, grammar in grammars.items()}
    walk(shelf.take("a"), 300)
    running = shelf.take("b").matcher()
    walk(shelf.take("b"), 300)
    assert grammars["a"].num_bytes > start["a"] + 30_000
    shelf._max_bytes = grammars["b"].num_bytes + 2 * start["c"] + 5000
    shelf.take("c")
    assert shelf.take("a") is not grammars["a"], "the oldest gave up what it had built"
    assert shelf.take("a").num_bytes < start["a"] + 5_000
    assert shelf.take("b") is grammars["b"]
    running.advance(1)  # and what runs goes on
    walk(shelf.take("a"), 300)


def test_one_grammar_past_the_bound_gives_up_its_own(trie):
    shelf = GrammarShelf(max_bytes=10)
    shelf.put("a", grammar := compile_regex("[a-z]{400}").bind(trie))
    walk(shelf.take("a"), 40)
    assert shelf.take("a") is not grammar


def test_a_grammar_that_did_not_load_says_why_and_can_be_dropped(trie):
    shelf = GrammarShelf()
    shelf.put("a", EspalierError("broken"))
    with pytest.raises(EspalierError, match="broken"):
        shelf.take("a")
    shelf.drop("a")
    with pytest.raises(KeyError):
        shelf.take("a")
