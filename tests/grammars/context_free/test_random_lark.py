"""Random grammars whose terminals overlap: what is not refused leads into no dead end, and lark reads its texts."""

from __future__ import annotations

import random

from hypothesis import given, reject, settings
from hypothesis import strategies as st
from lark import Lark

from decoding.errors import ConstraintError
from decoding.masks import unpack
from grammars.constraint import Notation
from grammars.vocabulary import Vocabulary

PIECES = ("a", "b", " ", "aa", "ab", "ba", "b ")
EOS = len(PIECES)
VOCABULARY = Vocabulary(
    tokens=(*(piece.encode() for piece in PIECES), b""), special_ids=frozenset({EOS}), eos_ids=(EOS,), size=EOS + 1
)
PATTERNS = ['"a"', '"b"', '"ab"', "/a+/", "/[ab]+/", "/ba*/", "/a(ab)*/", "/b.*?b/", "/(?!ab)[ab][ab]/", '"aa" | "b"']
NAMES = ("start", "r", "s")

symbols = st.sampled_from(["A", "B", "C", "r", "s", "start"])
branches = st.lists(symbols, max_size=3).map(" ".join)
rules = st.lists(branches, min_size=1, max_size=3).map(" | ".join)
grammars = st.builds(
    lambda bodies, terminals, ignored: "\n".join(
        [
            *(f"{name}: {body}" for name, body in zip(NAMES, bodies, strict=True)),
            *(f"{name}: {pattern}" for name, pattern in zip("ABC", terminals, strict=True)),
            *(["%ignore /[ ]+/"] if ignored else []),
        ]
    ),
    st.tuples(rules, rules, rules),
    st.lists(st.sampled_from(PATTERNS), min_size=3, max_size=3, unique=True),
    st.booleans(),
)


@settings(max_examples=150)
@given(grammar=grammars, choices=st.lists(st.integers(0, 10), max_size=6))
def test_every_walk_can_be_ended(grammar, choices, grammar_of):
    try:
        compiled = grammar_of(grammar, Notation.LARK, over=VOCABULARY)
    except ConstraintError:
        reject()
    matcher = compiled.matcher()
    text = ""
    for choice in choices:
        legal = [token for token in legal_tokens(matcher) if token != EOS]
        if not legal:
            break
        token = legal[choice % len(legal)]
        matcher.advance(token)
        text += PIECES[token]
    text += some_end(matcher)
    parser = Lark(grammar, parser="earley", lexer="dynamic_complete")
    parser.parse(text)


def legal_tokens(matcher) -> list[int]:
    legal = unpack(matcher.mask().bits_W, VOCABULARY.size).nonzero()[0].tolist()
    assert matcher.is_accepting == (EOS in legal)
    return legal


def some_end(matcher) -> str:
    """What completes the text, found by trying."""
    draw = random.Random(7)
    for length in (*range(8), *[80] * 2000):
        twin, text = matcher.fork(), ""
        while not twin.is_accepting and len(text) < length:
            token = draw.choice([token for token in legal_tokens(twin) if token < 3])
            twin.advance(token)
            text += PIECES[token]
        if twin.is_accepting:
            return text
    raise AssertionError("a dead end")
