"""A worker without its process, over an engine that knows a list of texts."""

from __future__ import annotations

import numpy as np
import pytest

from tests.bench.grammar.records import Compiled, Refused, Walked
from tests.bench.grammar.tasks import Instance, Task
from tests.bench.grammar.vocabularies import BenchVocabulary
from tests.bench.grammar.worker import MOST_TOKENS, Worker

EOS = 256


class TextsEngine:
    """Its schemas are texts, one a line; "!" does not compile, and no request survives the letter x."""

    def compile(self, kind, text):
        if "!" in text:
            raise ValueError("no")
        return text.split("\n")

    def matcher(self, grammar):
        return TextsWalk(grammar)

    def key(self, text):
        return text


class TextsWalk:
    def __init__(self, texts):
        self.texts = [text.encode() for text in texts]
        self.read = b""
        self.bits = np.zeros(9, dtype=np.int32)

    def mask(self):
        if b"x" in self.read:
            raise RuntimeError("an x")
        self.bits[:] = 0
        for text in self.texts:
            if text.startswith(self.read):
                token = EOS if text == self.read else text[len(self.read)]
                self.bits.view(np.uint32)[token >> 5] |= np.uint32(1 << (token & 31))

    def accept(self, token):
        self.read += bytes([token])
        return True


@pytest.fixture
def worker():
    vocabulary = BenchVocabulary(
        name="bytes",
        tokens=(*(bytes([byte]) for byte in range(256)), b""),
        special=frozenset([EOS]),
        eos=EOS,
        encode=lambda text: list(text.encode()),
    )
    return Worker(TextsEngine(), vocabulary)


def measured(worker, schema, *instances):
    return list(worker.measure(Task(name="x", group="y", schema=schema, instances=instances)))


def test_both_passes_say_what_the_engine_says(worker):
    compiled, first, second, repeat_s = measured(
        worker,
        "ab\nac",
        Instance(text="ab", is_valid=True),
        Instance(text="a", is_valid=False),
        Instance(text="ca", is_valid=True, ordered="ac"),
        Instance(text="ca", is_valid=True, ordered="cc"),
        Instance(text="ca", is_valid=True),
    )
    assert isinstance(compiled, Compiled)
    assert isinstance(first, Walked)
    assert [outcome.accepted for outcome in first.outcomes] == [True, False, False, False, False]
    assert [outcome.ordered_accepted for outcome in first.outcomes] == [None, None, True, False, None]
    assert [outcome.where for outcome in first.outcomes] == ["", "the end", "", " ▸c", " ▸c"]
    assert second.outcomes == first.outcomes
    assert len(first.steps.step_us) == 2 + 1 + 2  # a token that is refused is no step
    assert (first.steps.step_us >= first.steps.mask_us).all()
    assert repeat_s > 0


def test_an_engine_that_refuses_gives_its_reason(worker):
    assert measured(worker, "!") == [Refused(error="ValueError: no")]


def test_a_request_that_fails_is_neither_accepted_nor_refused(worker):
    _, first, _, _ = measured(worker, "xy", Instance(text="xy", is_valid=True), Instance(text="y", is_valid=False))
    assert [outcome.accepted for outcome in first.outcomes] == [None, False]
    assert first.outcomes[0].where == "RuntimeError: an x"


def test_a_text_that_is_too_long_is_not_walked(worker):
    _, first, _, _ = measured(worker, "a", Instance(text="a" * (MOST_TOKENS + 1), is_valid=False))
    assert first.outcomes[0].accepted is None
    assert len(first.steps.step_us) == 0


def test_memory_is_of_what_compiles(worker):
    tasks = [Task(name=text, group="y", schema=text, instances=()) for text in ("a", "!", "b")]
    held = worker.hold(tasks)
    assert held.schemas == 2
    assert held.own_bytes is None
