"""Open keys come once per object, by masks and by advances alike."""

from __future__ import annotations

import pytest

from decoding.errors import GrammarStateError

OPEN = {"type": "object", "additionalProperties": {"type": ["null", "object"]}}


def advanced(matcher, text):
    for byte in text:
        assert byte in matcher.mask(), text
        matcher.advance(byte)
    return matcher


def token_of(vocabulary, text):
    return vocabulary.tokens.index(text)


def test_the_closing_quote_of_a_used_key_is_illegal(grammar_of, vocabulary):
    matcher = advanced(grammar_of(OPEN).matcher(), b'{"ab":null,"ab')
    row = matcher.mask()
    assert ord('"') not in row
    assert token_of(vocabulary, b'":') not in row
    assert ord("a") in row
    with pytest.raises(GrammarStateError):
        matcher.advance(ord('"'))


def test_a_token_that_holds_the_whole_key_is_illegal_too(grammar_of, vocabulary):
    whole = token_of(vocabulary, b'"a"')
    matcher = advanced(grammar_of(OPEN).matcher(), b'{"b":null,')
    assert whole in matcher.mask()
    matcher = advanced(grammar_of(OPEN).matcher(), b'{"a":null,')
    assert whole not in matcher.mask()
    with pytest.raises(GrammarStateError):
        matcher.advance(whole)


def test_siblings_and_inner_objects_have_keys_of_their_own(grammar_of, accepts):
    grammar = grammar_of({"type": "array", "items": OPEN})
    assert accepts(grammar, '[{"a":null},{"a":null,"b":{"a":null,"b":null}}]')
    assert not accepts(grammar, '[{"a":null,"b":{"a":null},"b":null}]')
    assert not accepts(grammar, '[{"b":{"a":null,"a":null}}]')


def test_rollback_forgets_keys(grammar_of):
    matcher = advanced(grammar_of(OPEN).matcher(), b'{"a":null,"a')
    matcher.rollback(len(b'a":null,"a'))
    advanced(matcher, b'b":null,"a":null}')


def test_a_fork_remembers_keys_by_itself(grammar_of):
    matcher = advanced(grammar_of(OPEN).matcher(), b'{"a":null,"')
    fork = matcher.fork()
    advanced(matcher, b'b":null,"c')
    assert ord('"') not in advanced(fork, b"a").mask()
    advanced(fork, b'b":null}')


def test_a_key_whose_every_continuation_was_used_is_not_begun(grammar_of):
    schema = {"type": "object", "patternProperties": {"^(x[ab]|y.*)$": {"type": "null"}}, "additionalProperties": False}
    matcher = advanced(grammar_of(schema).matcher(), b'{"xa":null,"xb":null,"')
    row = matcher.mask()
    assert ord("x") not in row
    assert ord("y") in row
    with pytest.raises(GrammarStateError):
        matcher.advance(ord("x"))


def test_a_declared_key_is_no_open_key(grammar_of, accepts):
    grammar = grammar_of({"type": "object", "properties": {"a": {}}})
    assert accepts(grammar, '{"a":1,"b":2}')
    assert not accepts(grammar, '{"b":2,"a":1}')
    assert not accepts(grammar, '{"a":1,"a":1}')
    assert not accepts(grammar, '{"a":1,"\\u0061":1}')
