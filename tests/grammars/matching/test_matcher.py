"""The Matcher protocol over regular languages and JSON."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from decoding.errors import ConstraintError, GrammarStateError, UnsupportedConstraintError
from grammars.matching.compile import compile_regex
from grammars.matching.trie import TokenTrie


@pytest.fixture
def regex(trie):
    return lambda pattern: compile_regex(pattern).bind(trie)


def advanced(matcher, text):
    for byte in text:
        matcher.advance(byte)
    return matcher


def test_end_of_sequence_is_legal_exactly_where_the_text_is_complete(regex, vocabulary):
    matcher = regex("a(bc)?").matcher()
    assert not matcher.is_accepting
    assert not any(token in matcher.mask() for token in vocabulary.eos_ids)
    matcher.advance(ord("a"))
    assert matcher.is_accepting
    assert all(token in matcher.mask() for token in vocabulary.eos_ids)
    matcher.advance(ord("b"))
    assert not matcher.is_accepting
    assert not any(token in matcher.mask() for token in vocabulary.eos_ids)


@pytest.mark.parametrize("end", [0, 1])
def test_after_the_end_nothing_is_legal(regex, vocabulary, end):
    matcher = advanced(regex("ab").matcher(), b"ab")
    assert matcher.only_end()
    matcher.advance(vocabulary.eos_ids[end])
    assert matcher.is_finished
    assert not matcher.is_accepting
    with pytest.raises(GrammarStateError, match="ended"):
        matcher.mask()
    with pytest.raises(GrammarStateError, match="ended"):
        matcher.advance(ord("a"))


def test_special_and_padding_ids_are_never_legal(regex, vocabulary):
    row = regex(".*").matcher().mask()
    pure_special = vocabulary.special_ids.difference(vocabulary.eos_ids)
    assert not any(token in row for token in (*pure_special, *range(vocabulary.num_tokens, vocabulary.size)))


def test_errors_are_sticky_and_private(regex):
    grammar = regex("ab")
    matcher, other = grammar.matcher(), grammar.matcher()
    with pytest.raises(GrammarStateError, match="illegal"):
        matcher.advance(ord("b"))
    for failing in (matcher.mask, lambda: matcher.advance(ord("a")), lambda: matcher.rollback(0), matcher.only_end):
        with pytest.raises(GrammarStateError, match="illegal"):
            failing()
    assert not matcher.is_accepting
    assert advanced(other, b"ab").is_accepting


@pytest.mark.parametrize("token", [-1, 10**6])
def test_ids_outside_the_vocabulary_are_illegal(regex, token):
    with pytest.raises(GrammarStateError, match="illegal"):
        regex(".*").matcher().advance(token)


def test_an_early_end_is_illegal(regex, vocabulary):
    with pytest.raises(GrammarStateError, match="before the text was complete"):
        regex("ab").matcher().advance(vocabulary.eos_ids[0])


def test_rollback_restores_every_former_row(regex, vocabulary):
    matcher = regex("(ab|a[bc]d)*").matcher()
    rows = []
    for byte in b"ababdacd":
        rows.append(matcher.mask())
        matcher.advance(byte)
    matcher.advance(vocabulary.eos_ids[1])
    matcher.rollback(1)
    assert not matcher.is_finished
    for row in reversed(rows):
        matcher.rollback(1)
        assert matcher.mask() is row
    with pytest.raises(ValueError, match="take back"):
        matcher.rollback(1)


def test_a_fork_goes_its_own_way(regex):
    matcher = advanced(regex("a(b|c)").matcher(), b"a")
    fork = matcher.fork()
    fork.advance(ord("b"))
    assert matcher.mask() is not fork.mask()
    assert advanced(matcher, b"c").is_accepting
    with pytest.raises(ValueError, match="take back"):
        fork.rollback(2)


def test_equal_states_share_one_row(regex):
    grammar = regex("(ab)*")
    assert grammar.matcher().mask() is advanced(grammar.matcher(), b"ab").mask()


def test_forced_text(regex, grammar_of):
    assert regex("abc(d|e)").matcher().forced(10) == b"abc"
    assert regex("abc(d|e)").matcher().forced(2) == b"ab"
    assert regex("(abc)?").matcher().forced(10) == b""
    grammar = grammar_of({"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]})
    assert grammar.matcher().forced(5) == b'{"a":'


def test_a_grammar_survives_pickling_without_its_caches(grammar_of, accepts):
    grammar = grammar_of({"type": "object", "properties": {"a": {"type": "string", "pattern": "^x+$"}}})
    before = len(pickle.dumps(grammar.constraint))
    assert accepts(grammar, '{"a":"xx"}')
    assert len(pickle.dumps(grammar.constraint)) < 2 * before
    twin = pickle.loads(pickle.dumps(grammar.constraint)).bind(grammar.trie)
    assert twin.key == grammar.key
    assert accepts(twin, '{"a":"xx"}')
    assert not accepts(twin, '{"a":"y"}')


def test_bad_patterns_are_refused_by_name():
    with pytest.raises(ConstraintError, match=r"constraint\.regex"):
        compile_regex("a(b")
    with pytest.raises(UnsupportedConstraintError):
        compile_regex(r"(a)\1")
    with pytest.raises(ConstraintError, match="matches no text"):
        compile_regex("(?!a)a")


def test_a_vocabulary_that_cannot_spell_the_text_is_told(vocabulary):
    poor = replace(vocabulary, tokens=tuple(b"" if text == b"b" else text for text in vocabulary.tokens))
    matcher = compile_regex("bc").bind(TokenTrie.of(poor)).matcher()
    with pytest.raises(GrammarStateError, match="no token"):
        matcher.mask()
