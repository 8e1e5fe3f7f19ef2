"""The python dialect against `re.fullmatch`."""

import itertools
import re
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoding.errors import ConstraintError, UnsupportedConstraintError
from grammars.regular import RegularLimits, build, compile_regex, complement, concat, intersection, repeat

ATOMS = st.sampled_from(
    [
        "a",
        "b",
        ".",
        "[ab]",
        "[^a]",
        "[a-c]",
        r"\w",
        r"\W",
        r"\d",
        r"\s",
        r"\S",
        "c",
        "é",
        r"\n",
        "[^\\w]",
        "[\\s-]",
        "\u017f",
        "K",
        "İ",
    ]
)
ASSERTIONS = st.sampled_from(
    ["^", "$", r"\b", r"\B", r"\A", r"\Z", "(?<=a)", "(?<!b)", "(?<=[ab]c)", "(?<!^a)", "(?<=\\b.)"]
)
QUANTIFIERS = st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{,2}", "{2,}", "*?", "+?", "??", "{1,2}?"])


def _larger(inner):
    return st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        st.tuples(inner, QUANTIFIERS).map(lambda t: f"(?:{t[0]}){t[1]}"),
        st.tuples(st.sampled_from(["(?=", "(?!", "(", "(?i:", "(?s:", "(?m:", "(?a:"]), inner).map(
            lambda t: f"{t[0]}{t[1]})"
        ),
        st.tuples(ASSERTIONS, inner).map("".join),
        st.tuples(inner, ASSERTIONS).map("".join),
    )


PATTERNS = st.recursive(ATOMS, _larger, max_leaves=7)
PROBES = ["".join(w) for size in range(5) for w in itertools.product("abc\n", repeat=size)]
PROBES += [
    "A",
    "aB",
    "é",
    "É",
    "aé",
    "b é",
    " a",
    "a ",
    "1",
    "a1",
    "-",
    "_a",
    "\x85",
    "s",
    "S",
    "\u017f",
    "k",
    "K",
    "i",
    "İ",
    "\u0131",
    "٣",
]


@given(PATTERNS, st.sampled_from(["", "i", "s", "m", "a", "im", "as"]))
def test_full_matches_are_those_of_re(pattern, flags):
    compiled = re.compile(pattern, sum(getattr(re, flag.upper()) for flag in flags))
    automaton = build(compile_regex(pattern, flags=flags))
    for text in PROBES:
        if text or r"\B" not in pattern:  # whether \B holds in the empty text depends on Python's version
            assert automaton.matches(text.encode()) == bool(compiled.fullmatch(text)), text


@given(PATTERNS, st.text("abc\n", max_size=8))
def test_search_is_that_of_re(pattern, text):
    if text or r"\B" not in pattern:
        assert build(compile_regex(pattern, search=True)).matches(text.encode()) == bool(re.search(pattern, text))


@given(PATTERNS)
def test_no_state_is_a_dead_end(reachable, pattern):
    automaton = build(compile_regex(pattern))
    for state in reachable(automaton, 40):
        assert automaton.accepting(automaton.walk(automaton.completion(state), state))


COMBINED_PROBES = ["".join(w) for size in range(4) for w in itertools.product("abc\n", repeat=size)]


@given(PATTERNS, PATTERNS)
def test_look_around_sees_its_own_pattern_alone(left, right):
    """Patterns that are combined stay what they were by themselves."""
    one, other = compile_regex(left), compile_regex(right)
    chain, both = build(concat(one, other)), build(intersection(complement(one), repeat(other, 1, 2)))
    in_left, in_right = (
        {text: bool(re.fullmatch(pattern, text)) for text in COMBINED_PROBES} for pattern in (left, right)
    )
    for text in COMBINED_PROBES if r"\B" not in left + right else ():
        splits = [(text[:i], text[i:]) for i in range(len(text) + 1)]
        assert chain.matches(text.encode()) == any(in_left[a] and in_right[b] for a, b in splits), text
        twice = in_right[text] or any(in_right[a] and in_right[b] for a, b in splits)
        assert both.matches(text.encode()) == (twice and not in_left[text]), text


SYNTAX = st.text("ab(){}[]?*+|^$\\.-,:=!<>Pdwx01 #i", max_size=8)


@given(SYNTAX)
def test_what_re_refuses_is_refused_and_the_rest_means_the_same(pattern):
    """Random punctuation: whatever `re` compiles has its language, or is refused by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compiled = re.compile(pattern)
        except (re.error, OverflowError):
            compiled = None
    try:
        automaton = build(compile_regex(pattern))
    except UnsupportedConstraintError:
        return
    except ConstraintError:
        assert compiled is None
        return
    assert compiled is not None
    for text in (
        "",
        "a",
        "b",
        "ab",
        "a-",
        "]",
        "{}",
        "a{1",
        "x",
        " ",
        "\n",
        "0",
        "aa",
        "-b",
        "(",
        "#",
        "a#",
        ",",
        "b{,1}",
    ):
        assert automaton.matches(text.encode()) == bool(compiled.fullmatch(text)), text


@pytest.mark.parametrize(
    ("pattern", "words", "others"),
    [
        (r"[]a]+", ["]", "a]"], ["[", ""]),
        (r"[^]a]", ["b", "["], ["]", "a"]),
        (r"[a\-z]", ["a", "-", "z"], ["b"]),
        (r"\x41\u00e9\U0001F600\N{DIGIT ONE}", ["Aé😀1"], ["A"]),
        (r"\101\0\07[\18]", ["A\0\x07\x01", "A\0\x078"], ["101"]),
        (r"a{,2}", ["", "aa"], ["aaa"]),
        (r"a{2", ["a{2"], ["aa"]),
        (r"a{,}", ["", "aaaa"], ["a{,}"]),
        (r"(?P<n>a)(?#comment)b", ["ab"], ["a"]),
        (r"(?x) a b # c" + "\n" + r"[ ]\ d", ["ab  d"], ["abd"]),
        ("(?i)straße", ["STRAßE", "\u017ftraße", "straẞe"], ["strasse"]),
        (r"(?i-s:A)b", ["ab", "Ab"], ["aB"]),
        (r"\p{Lu}\P{L}", ["A1", "É "], ["a1", "AB"]),
        (r"\d", ["1", "٣"], ["a", "²"]),
        (r"(?a)\d\w\s", ["1a "], ["٣a ", "1é ", "1a\xa0"]),
        (r"a$", ["a"], ["a\n"]),
        (r"a$\n", ["a\n"], ["a"]),
        (r"a$.", [], ["a\n", "ab"]),
        (r"(?m)a$.^b", [], ["a\nb"]),
        (r"(?ms)a$.^b", ["a\nb"], ["ab"]),
    ],
)  # fmt: skip
def test_syntax(pattern, words, others):
    automaton = build(compile_regex(pattern))
    assert all(automaton.matches(word.encode()) for word in words)
    assert not any(automaton.matches(word.encode()) for word in others)
    if r"\p" not in pattern:
        assert all(re.fullmatch(pattern, word) for word in words)
        assert not any(re.fullmatch(pattern, word) for word in others)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (r"(a)\1", "back-reference"),
        (r"(?P<n>a)(?P=n)", "back-reference"),
        (r"(a)?(?(1)b|c)", "conditional"),
        (r"(?>a)", "atomic"),
        (r"a++", "possessive"),
        (r"(?<=a(?=b))", "look-ahead inside a look-behind"),
        (r"\p{Script=Greek}", "Script=Greek"),
    ],
)
def test_what_is_not_regular_is_refused_by_name(pattern, message):
    with pytest.raises(UnsupportedConstraintError, match=message):
        compile_regex(pattern)


@pytest.mark.parametrize(
    ("pattern", "place"),
    [
        ("a(b", "position 3"),
        ("a)b", "position 2"),
        ("[a", "position 2"),
        ("[b-a]", "position 4"),
        (r"[\d-z]", "position 5"),
        ("*a", "position 1"),
        ("a**", "position 3"),
        ("^*", "position 2"),
        ("a{3,2}", "position 6"),
        (r"\q", "position 2"),
        (r"\xg", "position 2"),
        (r"a(?i)", "position 4"),
        ("(?z:a)", "position 2"),
        ("(?P<1>a)", "position 6"),
        (r"\N{NO SUCH}", "position 11"),
        ("\\", "position 1"),
    ],
)
def test_malformed_patterns_are_refused_with_the_place(pattern, place):
    with pytest.raises(ConstraintError, match=place) as caught:
        compile_regex(pattern, field="constraint.regex")
    assert caught.value.field == "constraint.regex"
    with pytest.raises(re.error):
        re.compile(pattern)


def test_limits():
    with pytest.raises(ConstraintError, match="at most 10"):
        compile_regex("a" * 11, limits=RegularLimits(max_pattern_chars=10))
    with pytest.raises(ConstraintError, match="nested more than 2"):
        compile_regex("(((a)))", limits=RegularLimits(max_nesting=2))
    with pytest.raises(ConstraintError, match="count above 9"):
        compile_regex("a{10}", limits=RegularLimits(max_repeat=9))
    with pytest.raises(ConstraintError, match="flags 'z'"):
        compile_regex("a", flags="z")
    with pytest.raises(ConstraintError, match="surrogate"):
        compile_regex("\ud800")
