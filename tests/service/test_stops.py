"""Stop strings against the obvious search over the whole text."""

from __future__ import annotations

import codecs
import itertools

from hypothesis import given
from hypothesis import strategies as st

from decoding.finish import FinishReason
from service.sample_text import SampleText
from service.stops import StopAutomaton, TokenStopChecker

ALPHABET = "ab\u00e9\u20ac"
texts = st.text(ALPHABET, max_size=24)
stop_lists = st.lists(st.text(ALPHABET, min_size=1, max_size=5), min_size=1, max_size=4)


def first_stop(data: bytes, stops: list[str]) -> tuple[int, int] | None:
    """(start, end) of the stop string that is completed first, the longest where several are."""
    for end in range(1, len(data) + 1):
        lengths = [len(stop.encode()) for stop in stops if data[:end].endswith(stop.encode())]
        if lengths:
            return end - max(lengths), end
    return None


def longest_beginning(data: bytes, stops: list[str]) -> int:
    """Length of the longest suffix that begins a stop string."""
    sizes = range(len(data) + 1)
    return max(size for size in sizes if any(stop.encode().startswith(data[len(data) - size :]) for stop in stops))


def whole_characters(data: bytes) -> str:
    return codecs.getincrementaldecoder("utf-8")().decode(data)


@st.composite
def cut_bytes(draw):
    """A text's bytes cut into tokens anywhere, and those tokens into steps anywhere."""
    data = draw(texts).encode()
    borders = sorted(draw(st.sets(st.integers(0, len(data)), max_size=8)) | {0, len(data)})
    tokens = [data[a:b] for a, b in itertools.pairwise(borders)]
    steps, at = [], 0
    while at < len(tokens):
        size = draw(st.integers(1, 3))
        steps.append(list(range(at, min(at + size, len(tokens)))))
        at += size
    return data, tokens, steps


@given(cut_bytes(), stop_lists)
def test_the_checker_fires_in_the_token_that_completes_the_first_stop_string(cut, stops):
    data, tokens, _ = cut
    checker = TokenStopChecker(StopAutomaton(stops), tokens)
    fired = next((index for index in range(len(tokens)) if checker.fork().feed(index) | checker.feed(index)), None)
    found = first_stop(data, stops)
    ends = [sum(map(len, tokens[: index + 1])) for index in range(len(tokens))]
    assert fired == (None if found is None else next(i for i, end in enumerate(ends) if end >= found[1]))


@given(cut_bytes(), stop_lists)
def test_shown_text_ends_before_the_first_stop_string_and_is_never_taken_back(cut, stops):
    data, tokens, steps = cut
    found = first_stop(data, stops)
    text = SampleText(tokens, StopAutomaton(stops))
    shown, read = "", b""
    for step in steps:
        shown += text.feed(step)
        read += b"".join(tokens[index] for index in step)
        stopped = first_stop(read, stops)
        visible = read[: stopped[0]] if stopped else read[: len(read) - longest_beginning(read, stops)]
        assert shown == whole_characters(visible)
    shown += text.finish(FinishReason.STOP_STRING if found else FinishReason.EOS)
    assert shown == data[: found[0] if found else None].decode()


@given(cut_bytes(), stop_lists)
def test_cutting_into_tokens_and_steps_changes_nothing(cut, stops):
    data, tokens, steps = cut
    stepwise = SampleText(tokens, StopAutomaton(stops))
    at_once = SampleText([data], StopAutomaton(stops))
    reason = FinishReason.STOP_STRING
    joined = "".join(stepwise.feed(step) for step in steps) + stepwise.finish(reason)
    assert joined == at_once.feed([0]) + at_once.finish(reason)


def test_the_longest_of_several_that_complete_together_is_cut():
    text = SampleText([b"xabc"], StopAutomaton(["bc", "abc", "c"]))
    assert text.feed([0]) + text.finish(FinishReason.STOP_STRING) == "x"


def test_a_fork_goes_its_own_way():
    checker = TokenStopChecker(StopAutomaton(["ab"]), [b"a", b"b", b"c"])
    assert not checker.feed(0)
    other = checker.fork()
    assert not other.feed(2)
    assert checker.feed(1)
    assert not other.feed(1)
