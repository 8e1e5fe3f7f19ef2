from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoding.errors import GrammarStateError
from drafters.alternatives import AlternativesSource
from drafters.choosing import FixedChooser
from drafters.composition import Composition
from drafters.forced import ForcedSource
from drafters.growing import GrowingTree
from drafters.ngram import NgramSource
from drafters.protocol import DraftContext
from drafters.spelling import Speller
from engine.loading.encoder import TextEncoder
from grammars.json_schema.compile import JsonOptions, compile_json_schema
from grammars.matching.compile import compile_regex
from grammars.matching.trie import TokenTrie
from grammars.vocabulary import load_vocabulary

SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["red", "green"]}, "value": {"type": "integer"}, "ok": {"type": "boolean"}},
    "required": ["name", "value", "ok"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def tokenizer(tiny_model_dir):
    return TextEncoder(tiny_model_dir() / "tokenizer.json")


@pytest.fixture(scope="module")
def trie(tiny_model_dir):
    return TokenTrie.of(load_vocabulary(tiny_model_dir() / "tokenizer.json", eos_token_ids=(0, 2), size=512))


@pytest.fixture(scope="module")
def speller(tokenizer, trie):
    return Speller(tokenizer, trie.vocabulary.tokens)


@pytest.fixture(scope="module")
def forced(speller, trie):
    return ForcedSource(speller, trie.vocabulary.tokens)


def context(matcher, tokens=(1,), limit=32, width=4):
    return DraftContext(
        sequence_id=1, tokens=list(tokens), num_prompt=1, matcher=matcher, limit=limit, width=width, mix=None
    )


def grow(source, matcher, **options):
    made = context(matcher, **options)
    tree = GrowingTree(made, mix=(source.name,), limit=made.limit, width=made.width)
    source.grow([tree])
    return tree


def settled(grammar):
    """The grammar with the states of its forced text built: a call builds only so many as its time allows."""
    known = None
    while (text := grammar.matcher().forced(256)) != known:
        known = text
    return grammar


def warm(grammar, tokenizer, *texts):
    """The grammar with the states along these texts built."""
    for text in texts:
        matcher = grammar.matcher()
        for token in tokenizer.encode(text):
            matcher.mask()
            matcher.advance(token)
        matcher.mask()
    return grammar


def text_of(trie, tokens):
    return b"".join(trie.vocabulary.tokens[token] for token in tokens).decode()


@given(before=st.text(max_size=6), text=st.text(max_size=12))
def test_a_spelling_has_the_bytes_of_the_text_but_for_a_character_that_it_only_begins(speller, trie, before, text):
    data = text.encode()
    for cut in range(len(data) + 1):
        whole = data[:cut].decode(errors="ignore").encode()
        run = speller.spell(before.encode(), data[:cut])
        assert b"".join(trie.vocabulary.tokens[token] for token in run) == whole
        assert b"".join(trie.vocabulary.tokens[token] for token in speller.longest(data[:cut])) == data[:cut]


def test_a_text_is_spelled_as_the_tokenizer_spells_it_behind_what_comes_before(speller, tokenizer):
    whole = tokenizer.encode('{"name": "Ada", "value": 3}')
    for split in range(1, len(whole)):
        before = speller.bytes_before(whole[:split])
        after = b"".join(speller._tokens[token] for token in whole[split:])
        assert list(speller.spell(before, after)) == whole[split:]


def test_forced_text_is_drafted_in_the_tokenizers_own_spelling(forced, trie, tokenizer):
    grammar = settled(compile_regex("The station is far from here").bind(trie))
    tree = grow(forced, grammar.matcher())
    assert tree.path(len(tree) - 1) == tokenizer.encode("The station is far from here")
    assert set(tree.draft().sources[1:]) == {"forced"}


def drafted_text(trie, source, pattern):
    tree = grow(source, settled(compile_regex(pattern).bind(trie)).matcher())
    return text_of(trie, tree.path(len(tree) - 1))


def test_the_last_token_is_left_out_where_the_tokenizer_would_join_it(forced, trie):
    assert drafted_text(trie, forced, '"sta[a-z]+"') == '"st'  # "st" and "a" so far, but sta could become status
    assert drafted_text(trie, forced, '"sta",[a-z]+') == '"sta",'
    assert drafted_text(trie, forced, "it is [a-z]+") == "it is"  # the space belongs to the next word
    assert drafted_text(trie, forced, "it is [0-9]+") == "it is "  # digits stand alone in this tokenizer
    assert drafted_text(trie, forced, '"sta') == '"sta'


def test_a_long_text_is_cut_at_the_limit(forced, trie, tokenizer):
    grammar = settled(compile_regex("The station is far from here").bind(trie))
    tree = grow(forced, grammar.matcher(), limit=4)
    assert tree.path(len(tree) - 1) == tokenizer.encode("The station is far from here")[:3]


def walk(trie, grammar, choose):
    """Every state along one random text, and the tokens so far."""
    matcher, tokens = grammar.matcher(), []
    for _ in range(60):
        yield matcher, tokens
        row = matcher.mask()
        token = choose([token for token in range(trie.vocabulary.num_tokens) if token in row])
        matcher.advance(token)
        if matcher.is_finished:
            return
        tokens.append(token)


@given(data=st.data())
def test_every_guess_is_legal_and_the_tree_is_within_its_bounds(forced, speller, trie, data):
    sources = [forced, AlternativesSource(speller), NgramSource()]
    drafter = Composition(sources, FixedChooser([source.name for source in sources], rows=64))
    grammar = compile_json_schema(json.dumps(SCHEMA), JsonOptions()).bind(trie)
    limit, width = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 4))
    source = data.draw(st.randoms(use_true_random=False))
    for matcher, tokens in walk(trie, grammar, source.choice):
        (draft,) = drafter.propose([context(matcher, [1, *tokens], limit, width)])
        tree = draft.tree
        assert len(tree) <= limit
        assert max(map(len, tree.children())) <= width
        for node in range(1, len(tree)):
            twin = matcher.fork()
            for step in tree.path(node)[1:]:
                twin.advance(tree.tokens[step])


def test_forced_text_a_guess_and_forced_text_again_come_in_one_tree(forced, trie, tokenizer):
    text = '{"name":"green","value":12,"ok":true}'
    grammar = warm(compile_json_schema(json.dumps(SCHEMA), JsonOptions()).bind(trie), tokenizer, text)
    sources = [forced, NgramSource()]
    drafter = Composition(sources, FixedChooser(("forced", "ngram"), rows=64))
    tokens = tokenizer.encode('{"name":"green!')
    (draft,) = drafter.propose([context(grammar.matcher(), tokens, limit=40, width=1)])
    kinds = [name for index, name in enumerate(draft.sources[1:], 1) if name != draft.sources[index - 1]]
    assert kinds[:3] == ["forced", "ngram", "forced"]
    assert text.startswith(text_of(trie, draft.tree.tokens[1:]))


def test_branches_are_siblings(speller, trie, tokenizer):
    grammar = warm(compile_regex("(true|false|null)").bind(trie), tokenizer, "true", "false", "null")
    tree = grow(AlternativesSource(speller), grammar.matcher(), width=3, limit=16)
    leaves = [node for node, below in enumerate(tree.draft().tree.children()) if not below]
    assert {text_of(trie, tree.path(leaf)) for leaf in leaves} == {"true", "false", "null"}


def test_a_matcher_that_fails_ends_its_own_tree_only(forced, trie):
    class Failing:
        is_finished = False

        def fork(self):
            return self

        def forced(self, limit):
            raise GrammarStateError("bound of work")

    grammar = settled(compile_regex("The station").bind(trie))
    contexts = [context(Failing()), context(grammar.matcher())]
    drafts = Composition([forced], FixedChooser(["forced"], rows=64)).propose(contexts)
    assert len(drafts[0].tree) == 1 < len(drafts[1].tree)
