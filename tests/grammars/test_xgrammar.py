"""The xgrammar backend: the protocol, what it ignores of schemas, and agreement with our engine."""

from __future__ import annotations

import json
import pickle
import random
import re

import jsonschema
import pytest

from decoding.errors import ConstraintError, GrammarStateError, InvalidRequestError, UnsupportedConstraintError
from decoding.masks import unpack
from grammars.backends.xgrammar_schema import unenforced_keywords
from grammars.compiling import dispatch
from grammars.compiling.dispatch import compile_constraint
from grammars.compiling.messages import shared_objects
from grammars.compiling.messages import unpack as unpacked
from grammars.compiling.pool import CompilePool, PoolOptions
from grammars.constraint import ConstraintKind, ConstraintSpec, RegexDialect, Whitespace
from grammars.limits import ConstraintLimits
from grammars.protocol import Grammar, Matcher


def test_without_the_package_the_server_does_not_start_and_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(dispatch, "find_spec", lambda name: None)
    with pytest.raises(InvalidRequestError, match=r"pip install 'espalier-llm\[xgrammar\]'"):
        PoolOptions(backend="xgrammar")


@pytest.fixture
def made(trie):
    pytest.importorskip("xgrammar")

    def compiled(kind, text="", backend="xgrammar", **options):
        spec = ConstraintSpec(kind=ConstraintKind(kind), text=text, **options)
        return compile_constraint(spec, trie, limits=ConstraintLimits(), backend=backend)

    return compiled


@pytest.fixture
def regex(made):
    return lambda pattern, **options: made("regex", pattern, **options).grammar


def legal(matcher: Matcher, vocabulary) -> list[int]:
    return unpack(matcher.mask().bits_W, vocabulary.size).nonzero()[0].tolist()


def accepts(grammar: Grammar, text: str) -> bool:
    """In the fixture's vocabulary the id of a single byte is the byte."""
    matcher = grammar.matcher()
    for byte in text.encode():
        if byte not in matcher.mask():
            return False
        matcher.advance(byte)
    return matcher.is_accepting


@pytest.mark.parametrize(
    "pattern", ["(ab|a)*c?", "a(\\.a+)?", "[é🙂]{1,3}!?", "(?!ab$)[ab]{2,4}", "\\d+(?: \\d+){0,2}", "a{0,3}(b|aa)"]
)
def test_masks_of_regexes_equal_those_of_our_engine(regex, pattern, vocabulary):
    draw = random.Random(5)
    for _ in range(15):
        left, right, text = regex(pattern, backend="espalier").matcher(), regex(pattern).matcher(), b""
        while not left.is_finished:
            assert legal(left, vocabulary) == legal(right, vocabulary)
            assert (left.is_accepting, left.only_end()) == (right.is_accepting, right.only_end())
            ends = [token for token in legal(left, vocabulary) if token in vocabulary.eos_ids]
            token = draw.choice(ends if ends and len(text) > 8 else legal(left, vocabulary))
            for matcher in (left, right):
                matcher.advance(token)
            text += vocabulary.tokens[token]
        assert re.fullmatch(pattern, text.decode())


def test_a_pattern_is_read_in_its_dialect(regex):
    assert accepts(regex("\\d"), "٣")
    assert not accepts(regex("\\d", dialect=RegexDialect.ECMA), "٣")


def test_special_tokens_and_padding_are_never_legal(regex, vocabulary):
    row = regex("[^é]*").matcher().mask()
    without_text = [token for token in range(vocabulary.size) if not b"".join(vocabulary.tokens[token : token + 1])]
    assert [token for token in without_text if token in row] == list(vocabulary.eos_ids)


def test_random_rollbacks_and_forks_leave_what_a_fresh_matcher_has(regex, vocabulary):
    grammar = regex("(ab|a[bc]{1,2}|é)*")
    draw = random.Random(3)
    matcher, history = grammar.matcher(), []
    for _ in range(300):
        fresh = grammar.matcher()
        for token in history:
            fresh.advance(token)
        if not matcher.is_finished:
            assert legal(matcher, vocabulary) == legal(fresh, vocabulary)
            assert (matcher.is_accepting, matcher.only_end()) == (fresh.is_accepting, fresh.only_end())
        if history and (matcher.is_finished or len(history) > 6 or draw.random() < 0.4):
            count = draw.randint(1, len(history))
            matcher.rollback(count)
            del history[-count:]
        else:
            token = draw.choice(legal(matcher, vocabulary))
            twin = matcher.fork()
            matcher.advance(token)
            assert not twin.is_finished
            history.append(token)


def test_errors_stay_and_nothing_is_legal_after_the_end(regex, vocabulary):
    failed, ended = regex("ab").matcher(), regex("ab").matcher()
    with pytest.raises(GrammarStateError, match="illegal"):
        failed.advance(ord("x"))
    for byte in b"ab":
        ended.advance(byte)
    assert ended.only_end()
    ended.advance(vocabulary.eos_ids[1])
    for matcher, message in ((failed, "illegal"), (failed.fork(), "illegal"), (ended, "ended")):
        for refused in (matcher.mask, matcher.only_end, lambda m=matcher: m.forced(1), lambda m=matcher: m.advance(97)):
            with pytest.raises(GrammarStateError, match=message):
                refused()
    ended.rollback(1)
    assert ended.only_end()
    for token in (vocabulary.eos_ids[0], vocabulary.size - 1, -1, 10**9):
        with pytest.raises(GrammarStateError):
            regex("ab").matcher().advance(token)


def test_a_mask_that_takes_too_long_fails_its_own_matcher_only(regex, monkeypatch):
    grammar = regex("a+")
    from grammars.backends import xgrammar as backend  # noqa: PLC0415 - where the package is there

    with monkeypatch.context() as patch:
        patch.setattr(backend, "MAX_MASK_S", -1.0)
        matcher = grammar.matcher()
        with pytest.raises(GrammarStateError, match="too long to follow"):
            matcher.mask()
    with pytest.raises(GrammarStateError, match="too long to follow"):
        matcher.advance(ord("a"))
    assert grammar.matcher().mask().num_legal > 0


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [("abcx?", b"abc"), ("abc(d|e)", b"abc"), ("a|b", b""), ("(abc)?", b""), ("é[12]", "é".encode()), ("ab", b"ab")],
)
def test_forced_bytes_start_every_completion(regex, pattern, expected):
    matcher = regex(pattern).matcher()
    assert matcher.forced(100) == expected
    assert matcher.forced(1) == expected[:1]


def test_a_grammar_travels(regex, vocabulary):
    there = pickle.loads(pickle.dumps(regex("ab|abc")))
    assert there.key == regex("ab|abc").key
    assert legal(there.matcher(), vocabulary) == legal(regex("ab|abc").matcher(), vocabulary)
    assert there.num_bytes > 0


@pytest.mark.parametrize("pattern", ["(", r"(a)\1", "(?!a)a"])
def test_what_it_cannot_compile_is_a_constraint_error(regex, pattern):
    with pytest.raises(ConstraintError, match=r"^constraint\.regex"):
        regex(pattern)


VALUES = [
    *(None, True, 0, 1, 2, 3, 5, -1, 7, 1.5, 4.5, "", "a", "ab", "abc", "xay", "2020-01-01", [], [1], [1, 1], [1, 2]),
    *([1, 2, 3], ["a"], {}, {"a": 1}, {"a": "x"}, {"b": 1}, {"a": 1, "b": 2}, {"a": 1, "b": 2, "c": 3}, {"xa": "q"}),
]
INTEGER = {"type": "integer"}
A = {"properties": {"a": INTEGER}}
SCHEMAS = [
    {},
    {"type": "integer", "minimum": 2, "exclusiveMaximum": 5},
    {"type": "number", "exclusiveMinimum": 1, "maximum": 4.5},
    {"type": ["integer", "string"], "minimum": 2, "maxLength": 1},
    {"type": "string", "minLength": 2},
    {"type": "string", "pattern": "^a$", "minLength": 2},
    {"type": "string", "format": "date"},
    {"type": "string", "format": "iri"},
    {"type": "array", "items": INTEGER, "minItems": 1, "maxItems": 2},
    {"type": "array", "prefixItems": [INTEGER], "items": False, "minItems": 1},
    {"type": "array", "uniqueItems": True},
    {"type": "array", "contains": {"const": 1}},
    {"type": "object", **A, "required": ["a"], "additionalProperties": False},
    {"type": "object", **A, "required": ["b"]},
    {"type": "object", **A, "minProperties": 2},
    {"type": "object", "additionalProperties": INTEGER, "maxProperties": 1},
    {"type": "object", "patternProperties": {"^x": INTEGER}, **A},
    {"type": "object", "dependentRequired": {"a": ["b"]}},
    {"type": "object", **A, "unevaluatedProperties": False},
    {"minimum": 2},
    {"required": ["a"]},
    {"enum": [1, "a"]},
    {"enum": [1, "a"], "type": "string"},
    {"const": 1, "minimum": 2},
    {"anyOf": [INTEGER, {"type": "string"}]},
    {"anyOf": [INTEGER, {"type": "string"}], "minLength": 2},
    {"oneOf": [INTEGER, {"type": "number"}]},
    {"allOf": [INTEGER]},
    {"allOf": [INTEGER, {"minimum": 2}]},
    {"not": INTEGER},
    {"if": INTEGER, "then": {"minimum": 2}},
    {"$defs": {"i": INTEGER}, "$ref": "#/$defs/i"},
    {"$defs": {"i": INTEGER}, "$ref": "#/$defs/i", "minimum": 3},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
def test_what_it_ignores_of_a_schema_is_known(made, schema):
    """Refused by name, or nothing invalid is accepted; with best effort it is reported, and then it may be."""
    text = json.dumps(schema)
    reported = unenforced_keywords(text)
    compiled = made("json_schema", text, best_effort=True)
    assert compiled.unenforced == reported
    if reported:
        with pytest.raises(UnsupportedConstraintError, match=reported[0].keyword) as caught:
            made("json_schema", text)
        assert caught.value.pointer == reported[0].pointer
        return
    is_valid = jsonschema.Draft202012Validator(schema).is_valid
    texts = {json.dumps(value, separators=(",", ":")): is_valid(value) for value in VALUES}
    accepted = [text for text in texts if accepts(compiled.grammar, text)]
    assert [text for text in accepted if not texts[text]] == []
    assert accepted


@pytest.mark.parametrize("whitespace", Whitespace)
def test_schemas_in_every_layout(made, whitespace):
    rules = {"type": "object", **A, "required": ["a"], "additionalProperties": False}
    layouts = {"compact": '{"a":5}', "spaced": '{"a": 5}', "flexible": '{ "a" :5\n}'}
    compiled = made("json_schema", json.dumps(rules), whitespace=whitespace).grammar
    accepted = [name for name, text in layouts.items() if accepts(compiled, text)]
    assert accepted == (list(layouts) if whitespace is Whitespace.FLEXIBLE else [whitespace.value])


@pytest.mark.parametrize("text", ["{", "false", '{"type": "foo"}', '{"enum": []}'])
def test_a_schema_that_is_none_or_impossible_is_a_constraint_error(made, text):
    with pytest.raises(ConstraintError, match=r"^constraint\.json_schema"):
        made("json_schema", text, best_effort=True)


def test_known_defect_undeclared_keys_may_come_twice(made):
    """Documented in the module and in the README; once this fails, the defect is gone and the text can go too."""
    assert accepts(made("json_object").grammar, '{"b":1,"b":2}')


async def test_in_a_worker_of_the_pool(trie, vocabulary):
    pytest.importorskip("xgrammar")
    async with CompilePool(trie, PoolOptions(workers=1, backend="xgrammar")) as pool:
        compiled = await pool.compile(ConstraintSpec(kind=ConstraintKind.REGEX, text="ab|ac"))
    grammar = unpacked(compiled.packed, shared_objects(trie))
    assert grammar.matcher().branches(9) == (b"ab", b"ac")
    assert legal(grammar.matcher(), vocabulary) == [
        ord("a"),
        *(t for t, s in enumerate(vocabulary.tokens) if s == b"ab"),
    ]
