"""Every ready grammar: texts that it has and has not, and random walks read by a parser that is not ours."""

from __future__ import annotations

import ast
import json
import keyword
import random
import sqlite3
from collections.abc import Callable

import pytest
from lark import Lark

from decoding.errors import ConstraintError
from decoding.masks import unpack
from grammars.backends.llguidance import LlguidanceGrammar
from grammars.backends.llguidance_kinds import compile_grammar
from grammars.constraint import ConstraintKind, ConstraintSpec, Notation
from grammars.library import NAMES, find
from grammars.limits import ConstraintLimits
from grammars.vocabulary import Vocabulary

CASES = {
    "json": (
        ["1", '"a"', "-0.5e-3", '{"a": [1, {}, null],\n\t"b":"\\ud83d\\ude00"}', "[]", "true"],
        ["", "01", "{'a':1}", "[1,]", '{"a":1', '"\n"', '"\\ud83d"', "nul", "[1,  2]"],
    ),
    "arithmetic": (
        ["1", "(x+1)*-2", "2**-x ** 2", "1.5 / n % 3", "((1))"],
        ["", "1+", "()", "01", "x y", "1..2", "2 ** ", "a", "1  + 2"],
    ),
    "sql": (
        [
            "SELECT * FROM users",
            "SELECT DISTINCT u.name, COUNT(*) AS n FROM users AS u LEFT JOIN orders AS o ON u.id = o.user_id",
            "SELECT a FROM t WHERE o.total >= 10.5 AND NOT u.name LIKE 'A%''' GROUP BY u.name HAVING COUNT(*) > 2",
            "SELECT a FROM t ORDER BY n DESC, u.name LIMIT 10 OFFSET 5",
            "SELECT a FROM t WHERE a IN (1, 2) OR EXISTS (SELECT b FROM s) AND c BETWEEN 1 AND 2 AND d IS NOT NULL",
            "SELECT (a + 1) / 2 || 'x' FROM (SELECT a FROM t) AS t, s",
        ],
        [
            "",
            "SELECT FROM t",
            "SELECT * FROM select",
            "SELECT a FROM t; DROP TABLE t",
            "select * from t",
            "SELECT * FROM t WHERE",
            "DELETE FROM t",
            "SELECT * FROM t WHERE a = 'x",
            "SELECT *  FROM t",
        ],
    ),
    "calls": (
        ["f()", "a.b.c(1, x=[True, {'k': -2.5}], y=g(\"s\\n\"))", "f((1, ), (1, 2), z)", "notable(iffy)"],
        ["", "f", "f(", "f(x=1, 2)", "if()", "f(not=1)", "f(1 , 2)", "f(lambda)", "f('a\nb')", "f(01)", "f()()"],
    ),
}


def run_query(text: str) -> None:
    """SQLite knows none of the tables, which it says only of a text that it could read."""
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        sqlite3.connect(":memory:").execute(f"EXPLAIN {text}")


def parse_call(text: str) -> None:
    assert isinstance(ast.parse(text, mode="eval").body, ast.Call)


READERS: dict[str, Callable[[str], object]] = {
    "json": json.loads,
    "arithmetic": lambda text: ast.parse(text, mode="eval"),
    "sql": run_query,
    "calls": parse_call,
}
OPENING = {"json": b"[{,", "arithmetic": b"(+-*/%", "sql": b"(,.+-*/%|A", "calls": b"[{,.:="}
"""Bytes after which more must come; A begins AND."""


@pytest.fixture(scope="module")
def compiled(vocabulary) -> dict[str, LlguidanceGrammar]:
    specs = {name: ConstraintSpec(kind=ConstraintKind.GRAMMAR, text=f"@{name}") for name in NAMES}
    return {name: compile_grammar(spec, vocabulary, ConstraintLimits(), key=name) for name, spec in specs.items()}


def test_every_grammar_has_its_cases_and_its_reader():
    assert set(NAMES) == set(CASES) == set(READERS)


@pytest.mark.parametrize("name", NAMES)
def test_texts(compiled, accepts, name):
    good, bad = CASES[name]
    assert [text for text in (*good, *bad) if accepts(compiled[name], text)] == good
    for text in good:
        READERS[name](text)


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("name", NAMES)
def test_random_walks_end_and_are_read(compiled, vocabulary, name, seed):
    text = walked(compiled[name], vocabulary, seed, OPENING[name])
    READERS[name](text)
    grammar = find(name, field="f")
    if grammar.notation is Notation.LARK and len(text) < 80:  # Earley's time grows with the cube of the length
        Lark(grammar.text, parser="earley").parse(text)


def walked(grammar: LlguidanceGrammar, vocabulary: Vocabulary, seed: int, opening: bytes) -> str:
    """Tokens at random, later such that close and open nothing."""
    draw = random.Random(seed)
    matcher, tokens = grammar.matcher(), []
    while not matcher.is_finished:
        legal = unpack(matcher.mask().bits_W, vocabulary.size).nonzero()[0].tolist()
        assert any(token in vocabulary.eos_ids for token in legal) == matcher.is_accepting
        closing = [token for token in legal if token in vocabulary.eos_ids]
        if len(tokens) > 25:
            texts = {token: vocabulary.tokens[token] for token in legal}
            closing = closing or [token for token in legal if texts[token] in (b'"', b"'", b")", b"]", b"}")]
            closing = closing or [token for token in legal if not set(texts[token]).intersection(opening)]
        elif draw.random() < 0.8:
            closing = []
        plain = [token for token in legal if vocabulary.tokens[token].isascii() and vocabulary.tokens[token].isalnum()]
        token = draw.choice(closing or (plain if plain and draw.random() < 0.5 else legal))
        matcher.advance(token)
        tokens.append(token)
        assert len(tokens) < 2000
    return vocabulary.join(tokens).decode()


def test_an_unknown_name_is_told(vocabulary):
    spec = ConstraintSpec(kind=ConstraintKind.GRAMMAR, text="@yaml")
    with pytest.raises(ConstraintError, match="@yaml; use @json, @arithmetic, @sql, @calls"):
        compile_grammar(spec, vocabulary, ConstraintLimits(), key="k")


@pytest.mark.parametrize("name", NAMES)
def test_no_word_that_a_language_reserves_is_a_name(compiled, accepts, name):
    """By another list than the grammar's own."""
    if name == "calls":
        assert not any(accepts(compiled[name], f"{word}()") for word in keyword.kwlist)
    elif name == "sql":
        for word in (
            "order",
            "table",
            "index",
            "values",
            "case",
            "group",
            "limit",
            "natural",
            "join",
            "like",
            "offset",
        ):
            assert not accepts(compiled[name], f"SELECT {word} FROM t")
