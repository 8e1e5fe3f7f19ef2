"""Patterns that make other engines explode, and patterns that people wrote."""

import pytest

from decoding.errors import ConstraintError, UnsupportedConstraintError
from grammars.regular import build, compile_regex, complement, intersection, json_string, length, words

STATES = 10_000
"""Far below what any of these would need if counts or alternatives were multiplied out."""


@pytest.mark.parametrize(
    ("pattern", "word", "other"),
    [
        ("(a*)*b", "a" * 300 + "b", "a" * 300 + "c"),
        ("(x+x+)+y", "x" * 300 + "y", "y"),
        ("(a{1,1000}){1,1000}", "a" * 1500, ""),
        ("((a{0,100}){0,100}){0,100}", "a" * 500, "b"),
        ("(a|aa)+", "a" * 500, ""),
        ("(a|ab){0,1000}c", "ab" * 300 + "c", "ba"),
        ("(a|aa){200}", "a" * 300, "a" * 401),
        (".*a.{300}", "a" * 400, "b" * 301),
        ("[a-z]*" * 300, "abc" * 20, "A"),
        ("a?" * 500 + "a" * 500, "a" * 700, "a" * 499),
        ("(.*a){20}", "ba" * 20, "a" * 19),
        ("a{0,100000}", "a" * 500, "b"),
        ("(?:.?){0,5000}z", "y" * 200 + "z", "y"),
        ("(?=.*a)(?=.*b)(?=.*c)(?=.*d)(?=.*e).*", "xedcba", "xedcb"),
        ("(([a-z]{1,50}|[0-9]{1,50}){1,50}x){1,50}", "ab12x" * 20, "x"),
        ("(?:" * 50 + "a" + ")*" * 50, "a" * 50, "b"),
        ("(" * 50 + "a" + "|b)*c" * 50, "c", "abb"),
        ("(?:a(?:" * 25 + "b" + ")?)*" * 25, "a" * 25 + "b" + "a" * 30, "ba"),
    ],
)
def test_few_states_on_the_way(pattern, word, other):
    automaton = build(compile_regex(pattern))
    assert automaton.matches(word.encode())
    assert not automaton.matches(other.encode())
    assert automaton.num_states < STATES


def test_nesting_is_refused_before_it_can_hurt():
    with pytest.raises(ConstraintError, match="nested more than"):
        compile_regex("(" * 30_000 + "a" + ")" * 30_000)
    with pytest.raises(ConstraintError, match="at most"):
        compile_regex("a" * 100_000)


def test_long_word_lists():
    automaton = build(json_string(words(f"{i}-{'x' * (i % 5)}" for i in range(70_000))))
    assert automaton.matches(b'"69999-xxxx"')
    assert not automaton.matches(b'"70000-"')


def test_contradictions_are_found():
    for parts in (
        (compile_regex("a{1000}"), compile_regex("(aa)*a")),
        (compile_regex("foo", search=True), complement(compile_regex("fo+", search=True))),
        (compile_regex("[a-z]+"), length(0, 100_000), length(100_001)),
        (compile_regex("^[a-z]{3}$", dialect="ecma", search=True), length(4)),
    ):
        assert build(intersection(*parts)).is_empty


def _patterns(value):
    """Every pattern in a schema."""
    if isinstance(value, dict):
        if isinstance(value.get("pattern"), str):
            yield value["pattern"]
        if isinstance(value.get("patternProperties"), dict):
            yield from value["patternProperties"]
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from _patterns(inner)


def test_patterns_of_real_schemas_compile(real_schemas):
    patterns = list(dict.fromkeys(pattern for schema in real_schemas for pattern in _patterns(schema)))
    assert len(patterns) > 500
    refused = []
    for pattern in patterns:
        try:
            automaton = build(compile_regex(pattern, dialect="ecma", search=True))
            assert not automaton.is_empty, pattern
            assert automaton.matches(automaton.completion(automaton.start)), pattern
        except UnsupportedConstraintError:
            refused.append(pattern)
    assert refused == []
