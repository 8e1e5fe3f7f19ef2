"""Expressions taken apart and written again mean what they meant."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.errors import ConstraintError
from grammars.backends.llguidance import LlguidanceGrammar
from grammars.context_free.elimination import plain
from grammars.context_free.printing import print_language
from grammars.regular import expressions as e
from grammars.regular.automaton import build
from grammars.regular.nodes import LookAhead, LookBehind, Scope, walk
from grammars.regular.regex.compile import compile_regex

PATTERNS = [
    "a*b|é{2,3}",
    "(?!ab\\b)[a-c]+",
    "(?:[^a]|ab)*",
    '"[^"]*(?<!x)"',
    "[\\u0800-\\uffff🙂]+a?",
    "(ab|ba){1,3}(?=$)",
    "\\bab?\\b",
    "x(?!.*y).*",
]
texts = st.text(alphabet='abcxyé🙂"ࠀ ', max_size=6)


@pytest.mark.parametrize("pattern", PATTERNS)
@settings(max_examples=60)
@given(text=texts)
def test_plain_expressions_keep_the_language(pattern, text):
    expression = compile_regex(pattern)
    without = plain(expression, shortest=False, field="f")
    assert not any(isinstance(node, (LookAhead, LookBehind, Scope)) for node in walk(without))
    assert build(without).matches(text.encode()) == build(expression).matches(text.encode())


@pytest.mark.parametrize("pattern", PATTERNS)
@settings(max_examples=60)
@given(text=texts)
def test_shortest_words_begin_with_no_other(pattern, text):
    automaton = build(compile_regex(pattern))
    is_shortest = automaton.matches(text.encode()) and not any(
        automaton.matches(text[:end].encode()) for end in range(len(text))
    )
    shortest = plain(automaton.expression, shortest=True, field="f")
    assert build(shortest).matches(text.encode()) == is_shortest


@pytest.mark.parametrize(
    "pattern", [*PATTERNS, "[\\]\\^\\\\/\\-\\[&~]+", "a{0,5}?b{3}", "\\x00|\\n|\\u2028", "(?i:ß|k)"]
)
@settings(max_examples=40)
@given(text=texts | st.text(max_size=4))
def test_what_is_printed_means_the_same_to_llguidance(vocabulary, pattern, text):
    expression = plain(compile_regex(pattern), shortest=False, field="f")
    matcher = LlguidanceGrammar(key="k", text=print_language(expression), vocabulary=vocabulary, field="f").matcher()
    automaton = build(expression)
    state = automaton.start
    for byte in text.encode():
        assert matcher.is_accepting == automaton.accepting(state)
        state = int(automaton.row(state)[byte])
        assert (byte in matcher.mask()) == (state != 0)
        if not state:
            return
        matcher.advance(byte)
    assert matcher.is_accepting == automaton.accepting(state)


@pytest.mark.parametrize(
    "expression",
    [
        e.intersection(compile_regex("[ab]*"), e.complement(compile_regex("ab|b"))),
        e.concat(e.literal("x"), e.union(e.difference(compile_regex("[ab]{2}"), e.literal("ab")), e.literal("é"))),
        e.repeat(e.intersection(compile_regex("[ab]{1,2}"), compile_regex("a.*")), 1, 2),
    ],
)
def test_boolean_operators_are_printed(vocabulary, expression):
    grammar = LlguidanceGrammar(key="k", text=print_language(expression), vocabulary=vocabulary, field="f")
    automaton = build(expression)

    def visit(matcher, state: int, depth: int) -> None:
        assert matcher.is_accepting == automaton.accepting(state)
        for byte in b"abx\xc3\xa9":
            after = int(automaton.row(state)[byte])
            assert (byte in matcher.mask()) == (after != 0)
            if after and depth < 5:
                matcher.advance(byte)
                visit(matcher, after, depth + 1)
                matcher.rollback(1)

    visit(grammar.matcher(), automaton.start, 0)


def test_too_large_a_terminal_is_refused():
    with pytest.raises(ConstraintError, match="too large a terminal"):
        plain(compile_regex("(?!x)[a-z]{5000}"), shortest=False, field="f")
