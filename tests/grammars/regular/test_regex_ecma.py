"""The ecma dialect by examples from ECMA-262, and where it differs from Python's."""

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoding.errors import ConstraintError, UnsupportedConstraintError
from grammars.regular import build, compile_regex

ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\w", r"\d", r"\D", "c", r"(?<=a)", r"(?!b)", r"\b", "^", "$"])
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        st.tuples(inner, st.sampled_from("*+?")).map(lambda t: f"(?:{t[0]}){t[1]}"),
    ),
    max_leaves=7,
)
PROBES = ["".join(w) for size in range(5) for w in itertools.product("abc1", repeat=size)]


@given(PATTERNS)
def test_search_is_that_of_re_where_the_dialects_agree(pattern):
    """On ASCII text without line terminators ``$``, ``.`` and the classes mean the same."""
    compiled = re.compile(pattern, re.ASCII)
    automaton = build(compile_regex(pattern, dialect="ecma", search=True))
    for text in PROBES:
        assert automaton.matches(text.encode()) == bool(compiled.search(text)), text


@pytest.mark.parametrize(
    ("pattern", "words", "others"),
    [
        (r"\d", ["1"], ["٣"]),
        (r"\w", ["a", "_", "9"], ["é"]),
        (r"\s", [" ", "\ufeff", "\u2028", "\xa0", "\u3000"], ["\x85", "\x1c"]),
        (r".", ["\x85", "😀"], ["\n", "\r", "\u2028", "\u2029"]),
        (r"[]", [], ["", "]"]),
        (r"[^]", ["]", "\n", "😀"], [""]),
        (r"[\w-.]", ["-", ".", "a"], ["+"]),
        (r"[a-\d]", ["a", "-", "5"], ["b"]),
        (r"[\b]", ["\b"], ["b"]),
        (r"[-a]|[a-]", ["-", "a"], ["b"]),
        (r"\cJ\x41\u0042\u{1F600}\0", ["\nAB😀\0"], []),
        (r"\ud83d\ude00", ["😀"], []),
        (r"[\ud83d\ude00-\ud83d\ude02]", ["😁"], ["😃"]),
        (r"\-\/\_\@\a\%", ["-/_@a%"], []),
        (r"\xz\u{z}\u12\c", ["xzu{z}u12\\c"], []),
        (r"\1\8", ["\x018"], []),
        (r"x{,3}", ["x{,3}"], ["xx"]),
        (r"x{2,1", ["x{2,1"], []),
        (r"a]b}", ["a]b}"], []),
        (r"(?<year>\d{4})", ["2024"], []),
        (r"(?i:a)b", ["Ab"], ["AB"]),
        (r"(?=a)*b", ["b"], []),
        (r"\p{L}\P{Lu}", ["éa"], ["éA"]),
        (r"\p{gc=Nd}\p{General_Category=Uppercase_Letter}\p{ASCII}\p{White_Space}", ["٣É~\u2003"], []),
        (r"\k", ["k"], []),
    ],
)  # fmt: skip
def test_syntax(pattern, words, others):
    automaton = build(compile_regex(pattern, dialect="ecma"))
    for word in words:
        assert automaton.matches(word.encode()), word
    for word in others:
        assert not automaton.matches(word.encode()), word


def test_dollar_is_the_very_end():
    ecma, python = (build(compile_regex("a$", dialect=dialect, search=True)) for dialect in ("ecma", "python"))
    assert not ecma.matches(b"a\n")
    assert python.matches(b"a\n")
    multiline = build(compile_regex("^a$", dialect="ecma", search=True, flags="m"))
    assert multiline.matches("b\u2028a\rc".encode())


def test_case_is_ignored_by_simple_folding():
    automaton = build(compile_regex("[k-s]+", dialect="ecma", flags="i"))
    for text in ("KLM", "\u212a", "\u017f"):
        assert automaton.matches(text.encode())
    dotted = build(compile_regex("i", dialect="ecma", flags="i"))
    assert dotted.matches(b"I")
    assert not dotted.matches("İ".encode())
    assert not dotted.matches("\u0131".encode())
    assert build(compile_regex(r"\w", dialect="ecma", flags="i")).matches(b"k")
    assert not build(compile_regex("\u017f", dialect="ecma")).matches(b"s")


@pytest.mark.parametrize("pattern", [r"(a)\1", r"(?<n>a)\k<n>", r"\1(a)", r"\p{Latin}", r"\p{Script=Greek}", r"\ud800"])
def test_what_is_not_regular_is_refused_by_name(pattern):
    with pytest.raises(UnsupportedConstraintError, match=r"regular|known|surrogate"):
        compile_regex(pattern, dialect="ecma")


@pytest.mark.parametrize("pattern", ["(", "[", "a)", "a**", "^*", "a{2,1}", "[b-a]", r"\u{110000}", "(?<1>a)", "\\"])
def test_malformed_patterns_are_refused(pattern):
    with pytest.raises(ConstraintError, match="position"):
        compile_regex(pattern, dialect="ecma")


@pytest.mark.parametrize(
    ("pattern", "words", "others"),
    [
        ("ab", ["ab", "xaby"], ["ba"]),
        ("^ab", ["ab", "abx"], ["xab"]),
        ("ab$", ["xab"], ["abx", "ab\n"]),
        ("^a|b$", ["ax", "xb"], ["xa", "bx"]),
        ("^(a|b$)", ["ax", "b"], ["bx", "xb"]),
        ("(^a|c)b", ["abx", "xcb"], ["xab"]),
        ("", ["", "x"], []),
        ("^$", [""], ["x"]),
        ("^(?!foo)[a-z]+$", ["bar", "fo"], ["foo", "foobar"]),
        ("^(?!.*foo)", ["bar\n"], ["xfoo"]),
        (r"^(?=.*\d)(?=.*[a-z]).{4,}$", ["abc1"], ["abcd", "1234", "a1"]),
        (r"\bfoo\b", ["foo", "a foo!"], ["foobar", "xfoo", "foo_"]),
        (r"(?<!a)b", ["b", "ab b"], ["ab"]),
        ("^(?!^lucene\\.|builtin\\.).*", ["a"], ["lucene.x", "builtin.x"]),
    ],
)
def test_unanchored_patterns(pattern, words, others):
    automaton = build(compile_regex(pattern, dialect="ecma", search=True))
    for word in words:
        assert automaton.matches(word.encode()), word
    for word in others:
        assert not automaton.matches(word.encode()), word
