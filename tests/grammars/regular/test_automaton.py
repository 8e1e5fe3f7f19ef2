"""What an automaton promises beside its language."""

import pickle
import threading
from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoding.errors import ConstraintError, GrammarStateError
from grammars.regular import (
    DEAD,
    DEFAULT_LIMITS,
    EMPTY,
    RegularLimits,
    build,
    chars,
    compile_regex,
    complement,
    concat,
    fingerprint,
    intersection,
    json_string,
    length,
    literal,
    look_ahead,
    repeat,
    scope,
    star,
    tagged,
    union,
    words,
)
from grammars.regular.numbers import Bounds, integer

EXAMPLES = [
    compile_regex("a(b|é){2,5}c?"),
    compile_regex(r"^(?!foo)\w+\b.*$", dialect="ecma", search=True),
    json_string(intersection(length(1, 4), complement(words(["a", "bc"])))),
    integer(Bounds(minimum=17, maximum=4711, multiple_of=3)),
    union(tagged(1, literal("a")), tagged(2, star(chars("ab")))),
]


def _breadth_first_distance(automaton, state):
    queue, seen = deque([(state, 0)]), {state}
    while queue:
        here, length_ = queue.popleft()
        if automaton.accepting(here):
            return length_
        for target in np.unique(automaton.row(here)).tolist():
            if target and target not in seen:
                seen.add(target)
                queue.append((target, length_ + 1))
    raise AssertionError("a dead end")


@pytest.mark.parametrize("expression", EXAMPLES)
def test_distance_is_that_of_breadth_first_search(reachable, expression):
    automaton, other = build(expression), build(expression)
    for state in reachable(automaton, 60):
        assert automaton.distance(state) == _breadth_first_distance(automaton, state)
        assert len(automaton.completion(state)) == automaton.distance(state)
    assert len(other.completion(other.start)) == automaton.distance(automaton.start)


@pytest.mark.parametrize("expression", EXAMPLES)
def test_rows_say_what_moves_say(reachable, expression):
    automaton = build(expression)
    for state in reachable(automaton, 100):
        row, moves = automaton.row(state), automaton.moves(state)
        assert row is automaton.row(state)
        assert row.dtype == np.int32
        assert {byte: target for members, target in moves for byte in members.tolist()} == {
            byte: int(row[byte]) for byte in np.flatnonzero(row).tolist()
        }
        assert len({target for _, target in moves}) == len(moves)
        assert max(row) < automaton.num_states
        with pytest.raises(ValueError, match="read-only"):
            row[0] = 1
    assert not automaton.row(DEAD).any()
    assert automaton.moves(DEAD) == ()
    assert not automaton.accepting(DEAD)


@pytest.mark.parametrize("expression", EXAMPLES)
def test_pickled_expressions_and_automata_keep_their_language(expression):
    automaton = build(expression)
    restored = pickle.loads(pickle.dumps(expression))
    assert fingerprint(restored) == fingerprint(expression)
    for other in (build(restored), pickle.loads(pickle.dumps(automaton))):
        word = automaton.completion(automaton.start)
        assert other.matches(word)
        assert build(intersection(other.expression, complement(expression))).is_empty


def test_fingerprints_tell_expressions_apart():
    expressions = [*EXAMPLES, literal("a"), chars("a"), repeat(literal("a"), 1, 2), repeat(literal("a"), 1, 3)]
    expressions += [words(["a", "b"]), words(["a", "c"]), complement(literal("a")), tagged(1, literal("a"))]
    expressions += [json_string(literal("a")), json_string(literal("a"), escapes="canonical"), tagged(2, literal("a"))]
    assert len({fingerprint(expression) for expression in expressions}) == len(expressions)


def test_deep_expressions_pickle():
    deep = literal("a")
    for _ in range(75):
        deep = star(concat(deep, literal("b")))
    assert fingerprint(pickle.loads(pickle.dumps(deep))) == fingerprint(deep)
    assert build(deep).matches(b"bb")
    assert not build(deep).matches(b"abb")


@pytest.mark.parametrize(
    "level",
    [
        lambda x: intersection(concat(x, literal("ab")), complement(literal("b"))),
        lambda x: star(intersection(concat(x, literal("ab")), complement(literal("b")))),
        lambda x: complement(concat(x, literal("b"))),
        lambda x: repeat(concat(x, chars("ab")), 2, 5),
        lambda x: scope(concat(look_ahead(literal("a")), x, literal("c"))),
        lambda x: json_string(x),
        lambda x: union(tagged(1, x), literal("b")),
    ],
)
def test_the_deepest_expressions_allowed_do_not_exhaust_the_interpreter(level):
    deep = star(chars("ab"))
    while (deeper := level(deep)).depth <= DEFAULT_LIMITS.max_depth:
        deep = deeper
    automaton = build(deep)
    state = automaton.start
    for _ in range(10):
        moves = automaton.moves(state)
        state = moves[-1][1] if moves else state
    assert state != DEAD


def test_the_empty_language():
    automaton = build(intersection(literal("a"), literal("b")))
    assert automaton.is_empty
    assert automaton.start == DEAD
    assert not automaton.matches(b"")
    assert build(EMPTY).is_empty
    assert build(words([])).is_empty


def test_equal_states_are_one():
    automaton = build(compile_regex("(?:ab|cd)*"))
    assert automaton.walk(b"ab") == automaton.walk(b"cdab") == automaton.start
    assert automaton.walk(b"a", automaton.start) == automaton.walk(b"aba")


@given(st.lists(st.text("abé", max_size=4), max_size=12), st.text("abé", max_size=4))
def test_word_lists(texts, probe):
    automaton = build(words(texts))
    for text in (*texts, probe):
        assert automaton.matches(text.encode()) == (text in texts)


def test_unions_of_many_literals_are_word_lists():
    texts = [f"word{i}" for i in range(50)]
    automaton = build(concat(union(*map(literal, texts), chars("xy")), literal("!")))
    assert all(automaton.matches(f"{text}!".encode()) for text in (*texts, "x", "y"))
    assert not automaton.matches(b"word!")
    assert not automaton.matches(b"word50!")


def test_work_is_bounded_while_building():
    hard = intersection(
        compile_regex("(?:[ab]*a[ab]{14})"), compile_regex("(?:[ab]*b[ab]{14})"), compile_regex("[ab]{3,9}")
    )
    assert build(hard).is_empty
    with pytest.raises(ConstraintError, match=r"regex: .* simplify"):
        build(compile_regex("(?s).*(?<=a.{30}).*x"), RegularLimits(build_work=2000), field="regex")


def test_work_is_bounded_while_walking_and_a_refused_row_can_be_asked_again():
    """As many counters as letters a so far: the rows grow until one takes too much work, and only that one fails."""
    automaton = build(compile_regex("[ab]*a[ab]{300}"), RegularLimits(row_work=100))
    reached = [automaton.start]

    def walk():
        for byte in b"ab" * 150:
            reached.append(automaton.walk(bytes([byte]), reached[-1]))

    for _ in range(2):
        with pytest.raises(GrammarStateError, match="more than 100 steps"):
            walk()
    assert automaton.accepting(automaton.walk(b"a" * 301))


def test_states_are_bounded():
    automaton = build(compile_regex("a{1000}"), RegularLimits(max_states=50))
    with pytest.raises(GrammarStateError, match="more than 50 states"):
        automaton.walk(b"a" * 100)


def test_threads_share_an_automaton():
    automaton = build(compile_regex("(?:a|ab|b.{3}c)*"))
    results = []

    def work():
        results.append([automaton.walk(b"ab" * n + b"bxyzc") for n in range(40)])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(result == results[0] for result in results)
