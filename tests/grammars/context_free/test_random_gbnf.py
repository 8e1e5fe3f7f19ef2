"""Random grammars, ambiguous and left-recursive ones among them: every mask against trying each token."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.errors import ConstraintError
from decoding.masks import unpack
from grammars.vocabulary import Vocabulary

CHARACTERS = "abé"
PIECES = ("a", "b", "é", "aa", "ab", "ba", "bb", "aab", "bé")
VISITED = (0, 1, 2, 3, 9)
"""Tokens that are advanced over: a, b, é, aa, and the first half of é."""
EOS = len(PIECES) + 2
VOCABULARY = Vocabulary(
    tokens=(*(piece.encode() for piece in PIECES), b"\xc3", b"\xa9", b""),
    special_ids=frozenset({EOS}),
    eos_ids=(EOS,),
    size=EOS + 3,
)
NAMES = ("root", "r1", "r2")

leaves = st.one_of(
    st.tuples(st.just("text"), st.sampled_from(["a", "b", "ab", "aa", "ba", "aab", "é", ""])),
    st.tuples(st.just("class"), st.sampled_from(["a", "ab", "bé"])),
    st.tuples(st.just("rule"), st.sampled_from(NAMES)),
)
nodes = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: ("seq", *parts)),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: ("or", *parts)),
        st.builds(
            lambda bounds, body: ("repeat", *bounds, body),
            st.sampled_from([(0, None), (1, None), (0, 1), (2, 2), (1, 3)]),
            inner,
        ),
    ),
    max_leaves=6,
)
grammars = st.fixed_dictionaries(dict.fromkeys(NAMES, nodes))


def written(node: tuple) -> str:
    match node:
        case ("text", text):
            return f'"{text}"'.replace("é", "\\u00e9")
        case ("class", characters):
            return f"[{characters}]"
        case ("rule", name):
            return name
        case ("seq", *parts):
            return f"( {' '.join(map(written, parts))} )"
        case ("or", *branches):
            return f"( {' | '.join(map(written, branches))} )"
        case ("repeat", least, most, body):
            return f"( {written(body)} ){{{least},{'' if most is None else most}}}"
    raise AssertionError(node)


def decoded(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def has_text(node: tuple, known: set[str]) -> bool:
    match node:
        case ("rule", name):
            return name in known
        case ("or", *branches):
            return any(has_text(branch, known) for branch in branches)
        case ("seq", *parts):
            return all(has_text(part, known) for part in parts)
        case ("repeat", least, _, body):
            return least == 0 or has_text(body, known)
    return True


def all_have_texts(rules: dict[str, tuple]) -> bool:
    known: set[str] = set()
    for _ in rules:
        known |= {name for name, node in rules.items() if has_text(node, known)}
    return known == set(rules)


@settings(max_examples=150)
@given(rules=grammars)
def test_masks_equal_trying_each_token(rules, twin, grammar_of):
    text = "\n".join(f"{name} ::= {written(node)}" for name, node in rules.items())
    if not all_have_texts(rules):
        with pytest.raises(ConstraintError, match="never ends"):
            grammar_of(text, over=VOCABULARY)
        return
    matcher = grammar_of(text, over=VOCABULARY).matcher()

    tried = cache(lambda text: twin(rules, text))

    def is_begun(data: bytes) -> bool:
        """The bytes are the beginning of a text, or would be with the second half of é."""
        return any(text is not None and tried(text)[1] for text in (decoded(data), decoded(data + b"\xa9")))

    def visit(prefix: bytes) -> None:
        legal = set(unpack(matcher.mask().bits_W, VOCABULARY.size).nonzero()[0].tolist())
        text = decoded(prefix)
        is_text = text is not None and tried(text)[0]
        assert matcher.is_accepting == is_text, prefix
        expected = {token for token, piece in enumerate(VOCABULARY.tokens) if piece and is_begun(prefix + piece)}
        assert legal == expected | ({EOS} if is_text else set()), prefix
        assert matcher.only_end() == (legal == {EOS})
        if len(prefix) < 2:
            for token in expected.intersection(VISITED):
                matcher.advance(token)
                visit(prefix + VOCABULARY.tokens[token])
                matcher.rollback(1)

    visit(b"")
