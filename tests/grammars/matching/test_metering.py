from __future__ import annotations

import math

import pytest

from decoding.errors import GrammarStateError
from grammars.matching import metering
from grammars.matching.compile import compile_regex
from grammars.matching.metering import Allowance, MeteredSource
from grammars.matching.tables import Tables
from grammars.matching.trie import TokenTrie
from grammars.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def trie() -> TokenTrie:
    tokens = (b"", *(bytes([code]) for code in range(97, 123)))
    return TokenTrie.of(Vocabulary(tokens=tokens, special_ids=frozenset({0}), eos_ids=(0,), size=len(tokens)))


@pytest.fixture
def costs(monkeypatch) -> list[float]:
    """Every reading of the processor clock advances it by the last entry."""
    seconds = [0.0]
    now = [0.0]

    def clock() -> float:
        now[0] += seconds[-1]
        return now[0]

    monkeypatch.setattr(metering.time, "thread_time", clock)
    return seconds


class CountedSource:
    def __init__(self) -> None:
        self.expanded: list[int] = []

    def start(self, tables):
        return 1, 0

    def expand(self, tables, state):
        self.expanded.append(state)

    def resolve(self, tables, handler, outcome):
        return outcome


def test_building_stops_where_the_allowance_ends(costs):
    source = CountedSource()
    metered = MeteredSource(source)
    costs.append(1.0)
    metered.allow(2.5)
    for state in range(3):
        metered.expand(Tables(), state)
    with pytest.raises(GrammarStateError, match="simplify"):
        metered.expand(Tables(), 3)
    with pytest.raises(GrammarStateError, match="simplify"):
        metered.resolve(Tables(), 0, 1)
    assert source.expanded == [0, 1, 2]
    assert metered.since(0.0) == 3.0
    assert metered.allow(1.0) == 3.0
    metered.expand(Tables(), 4)


def test_what_goes_on_between_calls_is_not_paid_for(costs):
    metered = MeteredSource(CountedSource())
    costs.append(1.0)
    metered.allow(10.0)
    metered.expand(Tables(), 0)
    assert metered.since(0.0) == 1.0
    costs.append(100.0)
    metering.time.thread_time()
    costs.append(1.0)
    metered.expand(Tables(), 1)
    metering.time.thread_time()
    metered.expand(Tables(), 2)
    assert metered.spent_s == 3.0


def matcher_with(trie, per_call_s: float, in_all_s: float):
    grammar = compile_regex("[a-y]{30}z").bind(trie)
    grammar._allowance = Allowance(per_call_s, in_all_s)
    return grammar.matcher()


def steps(matcher) -> int:
    for count in range(30):
        try:
            matcher.mask()
            matcher.advance(1)
        except GrammarStateError:
            return count
    return 30


def test_a_sample_pays_for_what_nobody_had_needed_before_and_fails_alone(trie, costs):
    costs.append(1.0)
    poor = matcher_with(trie, math.inf, 10.0)
    reached = steps(poor)
    assert 0 < reached < 30
    with pytest.raises(GrammarStateError, match="simplify"):
        poor.mask()


def test_what_was_paid_for_is_free_for_the_next(trie, costs):
    costs.append(1.0)
    grammar = compile_regex("[a-y]{30}z").bind(trie)
    assert steps(grammar.matcher()) == 30, "without a bound"
    grammar._allowance = Allowance(0.5, 0.5)
    assert steps(grammar.matcher()) == 30


def test_a_fork_has_what_its_origin_had_left(trie, costs):
    costs.append(1.0)
    origin = matcher_with(trie, math.inf, 10.0)
    origin.mask()
    origin.advance(1)
    assert steps(origin.fork()) < 30


def test_a_grammar_that_travelled_is_bounded_and_one_that_is_compiled_is_not(trie):
    grammar = compile_regex("ab").bind(trie)
    grammar.matcher().mask()
    assert grammar._allowance == metering.UNLIMITED
    assert grammar.renewed()._allowance == metering.IN_ENGINE
