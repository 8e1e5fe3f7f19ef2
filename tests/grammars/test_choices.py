from __future__ import annotations

import pickle

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from decoding.errors import GrammarStateError
from decoding.masks import unpack
from grammars.choices import compile_choices
from grammars.matching.trie import TokenTrie
from grammars.protocol import Matcher
from grammars.vocabulary import Vocabulary

PIECES = ["a", "b", "ab", "ba", "abc", "é", "🙂", "no", "not", "\n"]
BYTES = [bytes([byte]) for byte in range(256)]
VOCABULARY = Vocabulary(
    tokens=(b"", *BYTES, *(piece.encode() for piece in PIECES), b"\xc3", b"ab", b""),
    special_ids=frozenset({0, 269}),
    eos_ids=(0, 269),
    size=300,
)
TRIE = TokenTrie.of(VOCABULARY)
CHOICES = st.lists(st.text(alphabet="abé🙂ñnot\n", min_size=1, max_size=6), min_size=1, max_size=8, unique=True)


def expected(choices: list[str], text: bytes) -> set[int]:
    """Brute force: every token whose bytes keep some choice within reach."""
    encoded = [choice.encode() for choice in choices]
    legal = {
        token
        for token, piece in enumerate(VOCABULARY.tokens)
        if piece and any(choice.startswith(text + piece) for choice in encoded)
    }
    return legal | (set(VOCABULARY.eos_ids) if text in encoded else set())


def legal(matcher: Matcher) -> set[int]:
    return set(unpack(matcher.mask().bits_W, VOCABULARY.size).nonzero()[0].tolist())


@settings(deadline=None)
@given(CHOICES)
def test_masks_equal_brute_force_and_lead_to_the_choices_and_nothing_else(choices: list[str]) -> None:
    start = compile_choices(choices).bind(TRIE).matcher()
    ended: set[bytes] = set()
    pending: list[tuple[bytes, Matcher]] = [(b"", start)]
    seen = {b""}
    while pending:
        text, matcher = pending.pop()
        allowed = legal(matcher)
        assert allowed == expected(choices, text)
        assert matcher.is_accepting == (text.decode(errors="replace") in choices)
        assert matcher.only_end() == (allowed == set(VOCABULARY.eos_ids))
        if matcher.is_accepting:
            ended.add(text)
        for token in allowed.difference(VOCABULARY.eos_ids):
            after = matcher.fork()
            after.advance(token)
            longer = text + VOCABULARY.tokens[token]
            if longer not in seen:
                seen.add(longer)
                pending.append((longer, after))
    assert ended == {choice.encode() for choice in choices}


@settings(deadline=None)
@given(CHOICES)
def test_forced_bytes_are_what_all_remaining_choices_share(choices: list[str]) -> None:
    matcher = compile_choices(choices).bind(TRIE).matcher()
    encoded = [choice.encode() for choice in choices]
    shared = b""
    while shared not in encoded and len({choice[len(shared)] for choice in encoded}) == 1:
        shared = encoded[0][: len(shared) + 1]
    assert matcher.forced(100) == shared
    assert matcher.forced(2) == shared[:2]


def test_tens_of_thousands_of_choices() -> None:
    choices = [f"item {number * 7919 % 1_000_003}" for number in range(50_000)]
    grammar = compile_choices(choices).bind(TRIE)
    for choice in (choices[0], choices[31_337], choices[-1]):
        matcher = grammar.matcher()
        for byte in choice.encode():
            token = byte + 1
            assert token in matcher.mask()
            matcher.advance(token)
        assert matcher.is_accepting
    with pytest.raises(GrammarStateError):
        matcher.advance(ord("x") + 1)


def test_order_does_not_matter_to_the_key_and_content_does() -> None:
    assert compile_choices(["a", "b"]).text_key == compile_choices(["b", "a"]).text_key
    assert compile_choices(["ab", "c"]).text_key != compile_choices(["a", "bc"]).text_key


def test_the_compiled_form_travels() -> None:
    copy = pickle.loads(pickle.dumps(compile_choices(["yes", "no"])))
    assert legal(copy.bind(TRIE).matcher()) == expected(["yes", "no"], b"")
