"""The algebra against its definition: every word over a small alphabet up to some length."""

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoding.errors import ConstraintError
from grammars.regular import (
    ANY_CHAR,
    ANY_TEXT,
    DEAD,
    EMPTY,
    EPSILON,
    CharSet,
    RegularLimits,
    build,
    chars,
    compile_regex,
    complement,
    concat,
    difference,
    intersection,
    length,
    literal,
    optional,
    repeat,
    star,
    union,
    words,
)

ALPHABET = "ab"
LONGEST = 5

LEAVES = st.one_of(
    st.sampled_from([EMPTY, EPSILON, ANY_CHAR, ANY_TEXT, chars("a"), chars("ab"), chars(~CharSet.of("a"))]),
    st.text(ALPHABET, max_size=3).map(literal),
    st.lists(st.text(ALPHABET, max_size=3), max_size=4).map(words),
    st.tuples(st.integers(0, 3), st.none() | st.integers(0, 2)).map(
        lambda t: length(t[0], None if t[1] is None else t[0] + t[1])
    ),
)


def _combined(inner):
    counts = st.tuples(st.integers(0, 3), st.none() | st.integers(0, 3))
    return st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: concat(*parts)),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: union(*parts)),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: intersection(*parts)),
        inner.map(complement),
        st.tuples(inner, inner).map(lambda pair: difference(*pair)),
        inner.map(star),
        inner.map(optional),
        st.tuples(inner, counts).map(lambda t: repeat(t[0], t[1][0], None if t[1][1] is None else sum(t[1]))),
    )


EXPRESSIONS = st.recursive(LEAVES, _combined, max_leaves=8)


@given(EXPRESSIONS)
def test_language_is_the_one_defined(denotation, expression):
    twin = denotation(ALPHABET, LONGEST)
    automaton = build(expression)
    expected = twin.of(expression)
    assert {word for word in twin.every if automaton.matches(word.encode())} == expected


@given(EXPRESSIONS)
def test_no_state_is_a_dead_end(reachable, expression):
    automaton = build(expression)
    states = reachable(automaton, 60)
    for state in states:
        assert state != DEAD
        assert automaton.accepting(automaton.walk(automaton.completion(state), state))


@given(EXPRESSIONS)
def test_an_empty_automaton_has_no_word_and_any_other_shows_one(denotation, expression):
    automaton = build(expression)
    if automaton.is_empty:
        assert not denotation(ALPHABET + "c", LONGEST).of(expression)
    else:
        assert automaton.matches(automaton.completion(automaton.start))


@given(EXPRESSIONS, st.integers(0, 2**32))
def test_words_are_valid_utf8_and_match(draw_word, expression, seed):
    automaton = build(expression)
    if not automaton.is_empty:
        word = draw_word(automaton, random.Random(seed), 12)
        word.decode()
        assert automaton.matches(word)


@given(EXPRESSIONS, EXPRESSIONS)
def test_laws_of_boolean_algebra(left, right):
    def equal(one, other):
        return build(difference(one, other)).is_empty and build(difference(other, one)).is_empty

    assert equal(complement(union(left, right)), intersection(complement(left), complement(right)))
    assert equal(union(left, intersection(left, right)), left)
    assert build(intersection(left, complement(left))).is_empty


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (r"(a|b)*abb", r"[ab]*a[ab][ab]"),
        (r"[a-z]{2,5}x?", r"(ab|cd)+"),
        (r"\d{1,3}(\.\d{1,3}){3}", r"1.*"),
        (r"(0|1(01*0)*1)*", r"(0|1){4,6}"),
    ],
)
def test_boolean_combinations_of_patterns(one, other):
    """Membership in a combination is the combination of memberships, which `re` decides."""
    left, right = compile_regex(one), compile_regex(other)
    both, only, either = build(intersection(left, right)), build(difference(left, right)), build(union(left, right))
    rng = random.Random(0)
    for _ in range(2000):
        text = "".join(rng.choices("abcdx01.9", k=rng.randrange(9)))
        in_left, in_right = bool(re.fullmatch(one, text)), bool(re.fullmatch(other, text))
        found = [automaton.matches(text.encode()) for automaton in (both, only, either)]
        assert found == [in_left and in_right, in_left and not in_right, in_left or in_right], text


def test_counts_far_apart_do_not_unroll():
    automaton = build(repeat(chars("ab"), 9_990, 10_000))
    assert automaton.num_states < 10
    assert automaton.distance(automaton.start) == 9_990


def test_refusals_name_the_mend():
    with pytest.raises(ConstraintError, match="valid UTF-8"):
        literal(b"\xff")
    with pytest.raises(ConstraintError, match="valid UTF-8"):
        words(["\ud800"])
    with pytest.raises(ConstraintError, match="no range"):
        repeat(ANY_CHAR, 3, 2)
    with pytest.raises(ConstraintError, match="levels of operators; at most 5"):
        build(
            complement(concat(star(concat(complement(star(literal("ab"))), EPSILON)), literal("c"))),
            RegularLimits(max_depth=5),
        )
    with pytest.raises(ConstraintError, match="at most 3"):
        build(concat(literal("a"), ANY_CHAR, literal("b")), RegularLimits(max_nodes=3))


def test_utf8_of_every_length_and_no_other_bytes():
    automaton = build(ANY_CHAR)
    for text in ("a", "é", "߿", "ࠀ", "퟿", "\ue000", "\uffff", "\U00010000", "\U0010ffff"):
        assert automaton.matches(text.encode())
    for data in (
        b"\x80",
        b"\xc0\x80",
        b"\xc1\xbf",
        b"\xe0\x80\x80",
        b"\xed\xa0\x80",
        b"\xf0\x80\x80\x80",
        b"\xf4\x90\x80\x80",
    ):
        assert automaton.walk(data) == DEAD
