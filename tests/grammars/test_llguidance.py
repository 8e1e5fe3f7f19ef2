"""The llguidance backend: the protocol, its own readings of schemas, and agreement with our engine."""

from __future__ import annotations

import json
import pickle
import random
import re

import jsonschema
import numpy as np
import pytest

from decoding.errors import ConstraintError, GrammarStateError, UnsupportedConstraintError
from decoding.masks import unpack
from grammars.backends import llguidance
from grammars.backends.llguidance import LlguidanceGrammar, LLParserLimits
from grammars.backends.llguidance_kinds import compile_llguidance
from grammars.compiling.dispatch import compile_constraint
from grammars.compiling.messages import pack, shared_objects
from grammars.compiling.messages import unpack as unpacked
from grammars.constraint import ConstraintKind, ConstraintSpec, Whitespace
from grammars.limits import ConstraintLimits
from grammars.matching.trie import TokenTrie
from grammars.protocol import Matcher
from grammars.vocabulary import Vocabulary

A_OR_C = (b"a", b"aa", b"ab", b"c")
EXPRESSION = 'root ::= root [-+] term | term\nterm ::= [0-9]{1,3} | "(" root ")"'


def grammar(vocabulary: Vocabulary, text: str) -> LlguidanceGrammar:
    return made(vocabulary, ConstraintSpec(kind=ConstraintKind.GRAMMAR, text=text))[0]


def made(vocabulary: Vocabulary, spec: ConstraintSpec):
    return compile_llguidance(spec, vocabulary, ConstraintLimits(), key="key")


def legal(matcher: Matcher, vocabulary: Vocabulary) -> list[int]:
    return unpack(matcher.mask().bits_W, vocabulary.size).nonzero()[0].tolist()


def advanced(matcher: Matcher, text: bytes) -> Matcher:
    for byte in text:
        matcher.advance(byte)
    return matcher


def test_special_tokens_and_padding_are_never_legal(vocabulary):
    everything = grammar(vocabulary, "root ::= .*").matcher()
    without_text = [token for token in range(vocabulary.size) if not b"".join(vocabulary.tokens[token : token + 1])]
    assert set(legal(everything, vocabulary)).intersection(without_text) == set(vocabulary.eos_ids)


def test_rows_are_immutable_and_computed_once_per_state(vocabulary):
    matcher = grammar(vocabulary, EXPRESSION).matcher()
    row = matcher.mask()
    assert matcher.mask() is row
    with pytest.raises(ValueError):
        row.bits_W[0] = 0
    before = row.bits_W.copy()
    advanced(matcher, b"1+")
    assert np.array_equal(row.bits_W, before)
    assert matcher.mask() is not row


def test_random_rollbacks_and_forks_leave_what_a_fresh_matcher_has(vocabulary):
    """Masks between rollbacks included, which llguidance's own rollback does not survive."""
    compiled = grammar(vocabulary, 'root ::= ( "a" | root | "a" [ab] "a" | "b" root "b" )*')
    draw = random.Random(3)
    matcher, history = compiled.matcher(), []
    for _ in range(600):
        fresh = compiled.matcher()
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
            assert twin.is_finished is False
            history.append(token)


def test_errors_stay(vocabulary):
    matcher = advanced(grammar(vocabulary, EXPRESSION).matcher(), b"(1")
    twin = matcher.fork()
    with pytest.raises(GrammarStateError, match="illegal"):
        matcher.advance(ord("x"))
    for refused in (matcher.mask, matcher.only_end, lambda: matcher.rollback(1), lambda: matcher.advance(ord(")"))):
        with pytest.raises(GrammarStateError, match="illegal"):
            refused()
    assert not matcher.is_accepting
    with pytest.raises(GrammarStateError, match="illegal"):
        matcher.fork().mask()
    for token in (vocabulary.eos_ids[0], vocabulary.size - 1, -1, 10**9):
        with pytest.raises(GrammarStateError):
            twin.fork().advance(token)
    assert advanced(twin, b")").is_accepting


def test_nothing_is_legal_after_the_end(vocabulary):
    matcher = advanced(grammar(vocabulary, 'root ::= "ab"').matcher(), b"ab")
    assert matcher.only_end()
    matcher.advance(vocabulary.eos_ids[1])
    assert matcher.is_finished
    assert not matcher.is_accepting
    for refused in (matcher.mask, matcher.only_end, lambda: matcher.forced(1), lambda: matcher.advance(0)):
        with pytest.raises(GrammarStateError, match="ended"):
            refused()
    matcher.rollback(1)
    assert matcher.only_end()


@pytest.mark.parametrize(
    ("text", "forced"),
    [
        ('root ::= "abc" "x"?', b"abc"),
        ('root ::= "abc" ("d" | "e") | "abf"', b"ab"),
        ('root ::= "é" [1-2]', "é".encode()),
        ('root ::= "ab"?', b""),
        ("root ::= [ab]", b""),
        ('root ::= "a" root "b" | "ac"', b"a"),
    ],
)
def test_forced_bytes_start_every_completion(vocabulary, text, forced):
    matcher = grammar(vocabulary, text).matcher()
    assert matcher.forced(100) == forced
    assert matcher.forced(1) == forced[:1]
    assert matcher.forced(0) == b""
    advanced(matcher, forced)


def test_a_grammar_travels_as_its_text(vocabulary):
    trie = TokenTrie.of(vocabulary)
    compiled = compile_constraint(
        ConstraintSpec(kind=ConstraintKind.GRAMMAR, text=EXPRESSION),
        trie,
        limits=ConstraintLimits(),
        backend="espalier",
    ).grammar
    packed = pack(compiled, shared_objects(trie))
    assert len(packed) < 1000
    there = unpacked(packed, shared_objects(trie))
    assert there.key == compiled.key
    assert legal(there.matcher(), vocabulary) == legal(compiled.matcher(), vocabulary)
    assert (compiled.num_states, compiled.num_bytes) == (1, there.num_bytes)
    assert legal(pickle.loads(pickle.dumps(there)).matcher(), vocabulary) == legal(there.matcher(), vocabulary)


def test_a_mask_that_takes_too_much_work_fails_its_own_matcher_only(vocabulary, monkeypatch):
    monkeypatch.setattr(llguidance, "LIMITS", LLParserLimits(step_max_items=20, verbose_errors=False))
    compiled = grammar(vocabulary, 'root ::= root root | "a" | "aa" | [ab]')
    matcher = compiled.matcher()

    def walk() -> None:
        for _ in range(50):
            matcher.mask()
            matcher.advance(ord("a"))

    with pytest.raises(GrammarStateError) as first:
        walk()
    with pytest.raises(GrammarStateError, match=re.escape(str(first.value))):
        matcher.mask()
    assert compiled.matcher().is_accepting is False


def test_a_mask_that_takes_too_long_fails_its_own_matcher_only(vocabulary, monkeypatch):
    matcher = grammar(vocabulary, EXPRESSION).matcher()
    with monkeypatch.context() as patch:
        patch.setattr(llguidance, "MAX_MASK_S", -1.0)
        with pytest.raises(GrammarStateError, match="too long to follow"):
            matcher.mask()
    with pytest.raises(GrammarStateError, match="too long to follow"):
        matcher.advance(ord("1"))
    assert grammar(vocabulary, EXPRESSION).matcher().mask().num_legal > 1


@pytest.mark.parametrize("number", [60, 1500])
def test_a_very_ambiguous_grammar_is_refused(vocabulary, number):
    """Each character is a word of every terminal, so that work would grow with the square of their number."""
    branches = " | ".join(f"[^\\u{0x4E00 + index:04x}] y" for index in range(number))
    with pytest.raises(ConstraintError, match=r"has \d+ terminals .* the limit is 50"):
        grammar(vocabulary, f'root ::= "a" x\nx ::= {branches}\ny ::= "!" | x | "(" y ")"')


@pytest.mark.parametrize(
    "pattern", ["(ab|a)*c?", "a(\\.a+)?", "[é🙂]{1,3}!?", "(?!ab$)[ab]{2,4}", "\\w+(?: \\w+){0,2}", "a{0,3}(b|aa)"]
)
def test_masks_of_regexes_equal_those_of_our_engine(trie, pattern):
    spec = ConstraintSpec(kind=ConstraintKind.REGEX, text=pattern)
    check_equal(trie, spec, lambda text: re.fullmatch(pattern, text))


def test_choices_equal_those_of_our_engine(trie):
    values = ("a.b", "a b\n", "[é]", "\\", "a", "ab/")
    check_equal(trie, ConstraintSpec(kind=ConstraintKind.CHOICES, values=values), lambda text: text in values)


def check_equal(trie, spec, is_valid) -> None:
    ours, theirs = (
        compile_constraint(spec, trie, limits=ConstraintLimits(), backend=name).grammar
        for name in ("espalier", "llguidance")
    )
    draw = random.Random(5)
    for _ in range(25):
        left, right, text = ours.matcher(), theirs.matcher(), b""
        while not left.is_finished:
            assert legal(left, trie.vocabulary) == legal(right, trie.vocabulary)
            assert (left.is_accepting, left.only_end()) == (right.is_accepting, right.only_end())
            ends = [token for token in legal(left, trie.vocabulary) if token in trie.vocabulary.eos_ids]
            token = draw.choice(ends if ends and len(text) > 8 else legal(left, trie.vocabulary))
            for matcher in (left, right):
                matcher.advance(token)
            text += trie.vocabulary.tokens[token]
        assert is_valid(text.decode())


@pytest.mark.parametrize("whitespace", Whitespace)
def test_schemas_in_every_layout(vocabulary, whitespace):
    rules = {
        "type": "object",
        "properties": {"a": {"type": "integer", "minimum": 3}, "b": {"type": "array", "items": {"enum": [1, "x"]}}},
        "required": ["a"],
        "additionalProperties": False,
    }
    layouts = {
        "compact": '{"a":5,"b":[1,"x"]}',
        "spaced": '{"a": 5, "b": [1, "x"]}',
        "flexible": '{ "a":5,\n"b" :[1, "x"]}',
    }
    spec = ConstraintSpec(kind=ConstraintKind.JSON_SCHEMA, text=json.dumps(rules), whitespace=whitespace)
    compiled, unenforced = made(vocabulary, spec)
    assert unenforced == ()
    assert advanced(compiled.matcher(), layouts[whitespace.value].encode()).is_accepting
    draw = random.Random(1)
    for _ in range(10):
        matcher, tokens = compiled.matcher(), []
        while not matcher.is_finished:
            allowed = legal(matcher, vocabulary)
            ends = [token for token in allowed if vocabulary.tokens[token] in (b"", b"}", b"]", b'"}', b"]}", b"1")]
            token = draw.choice(ends if ends and len(tokens) > 15 else allowed)
            matcher.advance(token)
            tokens.append(token)
        jsonschema.validate(json.loads(vocabulary.join(tokens)), rules)


def test_any_json_object_and_boolean_schemas(vocabulary):
    anything, _ = made(vocabulary, ConstraintSpec(kind=ConstraintKind.JSON_OBJECT))
    assert advanced(anything.matcher(), b'{"a":[1,{}]}').is_accepting
    true, _ = made(vocabulary, ConstraintSpec(kind=ConstraintKind.JSON_SCHEMA, text="true"))
    assert advanced(true.matcher(), b"[1]").is_accepting
    for text, message in (("false", "no value"), ("[]", "neither"), ("{", "not JSON"), ('{"type": 3}', "llguidance")):
        with pytest.raises(ConstraintError, match=message):
            made(vocabulary, ConstraintSpec(kind=ConstraintKind.JSON_SCHEMA, text=text))


@pytest.mark.parametrize(
    ("schema", "keywords"),
    [
        ({"contains": {}, "uniqueItems": True}, ["contains", "uniqueItems"]),
        ({"type": "string", "format": "x"}, ["format"]),
    ],
)
def test_keywords_that_it_does_not_know_are_refused_or_reported(vocabulary, schema, keywords):
    text = json.dumps(schema)
    with pytest.raises(UnsupportedConstraintError, match=keywords[0]):
        made(vocabulary, ConstraintSpec(kind=ConstraintKind.JSON_SCHEMA, text=text))
    spec = ConstraintSpec(kind=ConstraintKind.JSON_SCHEMA, text=text, best_effort=True)
    assert sorted(entry.keyword for entry in made(vocabulary, spec)[1]) == keywords


@pytest.mark.parametrize("pattern", ["(?=b)a", "[^\\x00-\\U0010ffff]"])
def test_patterns_without_a_text_are_refused(vocabulary, pattern):
    with pytest.raises(ConstraintError, match="no text"):
        made(vocabulary, ConstraintSpec(kind=ConstraintKind.REGEX, text=pattern))


def test_a_chain_that_would_exhaust_the_native_stack_is_refused(vocabulary):
    rules = [f'r{number} ::= "a" r{number + 1} | "b"' for number in range(2000)]
    with pytest.raises(ConstraintError, match="from rule to rule more than 400 deep"):
        grammar(vocabulary, "\n".join(["root ::= r0", *rules, 'r2000 ::= "c"']))


def test_counts_of_counts_stay_within_bounds(vocabulary):
    compiled = grammar(vocabulary, 'root ::= ("a"{1,2000} "b"){2000} root | "c"')
    assert legal(compiled.matcher(), vocabulary) == [t for t, text in enumerate(vocabulary.tokens) if text in A_OR_C]
