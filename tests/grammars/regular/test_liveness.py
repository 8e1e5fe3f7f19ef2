"""What is told of terms from their structure is what a search for a word finds."""

from __future__ import annotations

import random

import pytest

from grammars.regular import CharSet, build, chars, complement, intersection, json_string, length, repeat
from grammars.regular import kinds as k
from grammars.regular.json_escapes import BODY
from grammars.regular.liveness import Liveness
from grammars.regular.regex.compile import compile_regex

SAMPLES = [
    intersection(compile_regex(r"[^@]+@[a-z]+\.(com|org)"), length(0, 9)),
    intersection(compile_regex("[é-ö😀-😃]*"), complement(compile_regex(".*ö.*")), length(2, 3)),
    intersection(compile_regex("[\\x00-\\x1f]+"), length(1, 2)),
    repeat(intersection(chars(CharSet.of("a\n\ud7ff\ue000\U0010ffff")), complement(chars(CharSet.of("a")))), 0, 2),
]


class _Searching(Liveness):
    """Looks for a word from inside the spellings of characters too."""

    def _needs_search(self, term: int) -> bool:
        is_spelling = self._terms.kind[term] == k.JSON and self._terms.args[term][0] != BODY
        return is_spelling or super()._needs_search(term)


@pytest.mark.parametrize("escapes", ["any", "canonical"])
@pytest.mark.parametrize("sample", SAMPLES, ids=range(len(SAMPLES)))
def test_the_automaton_is_that_of_a_search(monkeypatch, sample, escapes):
    expression = json_string(sample, escapes=escapes)
    told = build(expression)
    monkeypatch.setattr("grammars.regular.automaton.Liveness", _Searching)
    searched = build(expression)
    draw = random.Random(1)
    for _ in range(60):
        here, there = told.start, searched.start
        for _ in range(40):
            bytes_ = [byte for byte in range(256) if told.row(here)[byte]]
            assert bytes_ == [byte for byte in range(256) if searched.row(there)[byte]]
            assert told.accepting(here) == searched.accepting(there)
            if not bytes_:
                break
            byte = draw.choice([*bytes_, *([byte for byte in b"\\ud" if byte in bytes_] * 8)])
            here, there = int(told.row(here)[byte]), int(searched.row(there)[byte])
