"""`Matcher.branches` against brute force over all texts of small languages, for every backend."""

from __future__ import annotations

import itertools
import json
import random
import re

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from decoding.errors import GrammarStateError
from grammars.compiling.dispatch import BACKENDS, compile_constraint, is_installed
from grammars.constraint import ConstraintKind, ConstraintSpec
from grammars.limits import ConstraintLimits
from grammars.matching import matcher as matching
from grammars.matching.metering import Allowance
from grammars.matching.trie import TokenTrie
from grammars.protocol import MAX_BRANCHES, Matcher
from grammars.vocabulary import Vocabulary

INSTALLED = [name for name in BACKENDS if is_installed(name)]
TRIE = TokenTrie.of(
    Vocabulary(
        tokens=(*(bytes((byte,)) for byte in range(256)), b"ab", b"bc", b"true", b'":', b"\xc3\xa9", b""),
        special_ids=frozenset({261}),
        eos_ids=(261,),
        size=270,
    )
)
WORDS = st.lists(st.text(alphabet="abcé", min_size=1, max_size=6), min_size=1, max_size=8, unique=True)


def matcher_of(spec: ConstraintSpec, backend: str = "espalier") -> Matcher:
    return compile_constraint(spec, TRIE, limits=ConstraintLimits(), backend=backend).grammar.matcher()


def choices(*values: str) -> ConstraintSpec:
    return ConstraintSpec(kind=ConstraintKind.CHOICES, values=values)


def regex(pattern: str) -> ConstraintSpec:
    return ConstraintSpec(kind=ConstraintKind.REGEX, text=pattern)


def schema(rules: object) -> ConstraintSpec:
    return ConstraintSpec(kind=ConstraintKind.JSON_SCHEMA, text=json.dumps(rules))


def shared_beginning(texts: set[bytes]) -> bytes:
    first, last = min(texts), max(texts)
    return bytes(a for a, b in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False)))


def expected(texts: set[bytes], limit: int) -> tuple[bytes, ...]:
    """Brute force over all that may still come, ``texts``."""
    shared = shared_beginning(texts)
    longer = {text for text in texts if len(text) > len(shared)}
    first_bytes = {text[len(shared)] for text in longer}
    if len(shared) >= limit or not longer:
        return (shared[:limit],) if shared[:limit] else ()
    if len(first_bytes) > MAX_BRANCHES:
        return ()
    groups = [{text for text in longer if text[len(shared)] == byte} for byte in sorted(first_bytes)]
    return tuple(shared_beginning(group)[:limit] for group in groups)


def check_beginnings(spec: ConstraintSpec, texts: set[bytes], backend: str) -> None:
    """What holds wherever alternatives stop: every text begins with exactly one of them."""
    told = matcher_of(spec, backend).branches(100)
    assert told
    parting = shared_beginning(set(told))
    assert all(sum(text.startswith(branch) for branch in told) == 1 for text in texts if not parting.startswith(text))


def check_along(spec: ConstraintSpec, texts: set[bytes], backend: str, draw: random.Random) -> None:
    """Along one of ``texts``, all that the constraint allows, at each of its bytes."""
    matcher = matcher_of(spec, backend)
    text = draw.choice(sorted(texts))
    for done in range(len(text) + 1):
        coming = {other[done:] for other in texts if other.startswith(text[:done])}
        for limit in (0, 1, 2, 100):
            before = matcher.mask().bits_W.tobytes()
            assert matcher.branches(limit) == expected(coming, limit), (backend, text[:done], limit)
            assert matcher.mask().bits_W.tobytes() == before
        assert all(branch.startswith(matcher.forced(100)) for branch in matcher.branches(100))
        if done < len(text):
            matcher.advance(text[done])


@pytest.mark.parametrize("backend", INSTALLED)
@settings(deadline=None, max_examples=25)
@given(words=WORDS, seed=st.integers(0, 99))
def test_of_choices(backend: str, words: list[str], seed: int) -> None:
    if backend == "outlines-core":  # it drops tokens after a state where the text may end, so none may begin another
        words = [f"{word}!" for word in words]
    if backend == "xgrammar":  # it forces whole characters alone, so that alternatives may stop within others
        check_beginnings(choices(*words), {word.encode() for word in words}, backend)
        words = sorted({word.replace("é", "d") for word in words})
    check_along(choices(*words), {word.encode() for word in words}, backend, random.Random(seed))


@pytest.mark.parametrize("backend", INSTALLED)
@pytest.mark.parametrize("pattern", ["ab(c|a)(ab|ba|b)c?", "a{2,5}b", "(é|è)a(b|c){1,2}", "abc", "(?:abc)?"])
def test_of_regular_expressions(backend: str, pattern: str) -> None:
    if backend == "outlines-core" and pattern == "(?:abc)?":
        pytest.skip("drops tokens after a state where the text may end")
    if backend == "xgrammar" and not pattern.isascii():
        pytest.skip("forces whole characters alone")
    alphabet = ["a", "b", "c", "é", "è"]
    texts, longer = set(), [""]
    while longer:
        texts |= {text for text in longer if re.fullmatch(pattern, text)}
        longer = [text + char for text in longer for char in alphabet if len(text) < 6]
    for seed in range(6):
        check_along(regex(pattern), {text.encode() for text in texts}, backend, random.Random(seed))


def test_of_a_schema() -> None:
    rules = {
        "type": "object",
        "properties": {"kind": {"enum": ["on", "off", True]}, "left": {"type": "boolean"}, "lost": {"const": 1}},
        "required": ["kind"],
        "additionalProperties": False,
    }
    kinds, lefts, losts = ['"on"', '"off"', "true"], ["", ',"left":true', ',"left":false'], ["", ',"lost":1']
    texts = {f'{{"kind":{kind}{left}{lost}}}'.encode() for kind in kinds for left in lefts for lost in losts}
    matcher = matcher_of(schema(rules))
    assert matcher.branches(100) == (b'{"kind":"o', b'{"kind":true')
    for seed in range(10):
        check_along(schema(rules), texts, "espalier", random.Random(seed))


def test_what_a_sample_used_before_is_no_alternative() -> None:
    """Items that must differ are a matter of the sample's memory, not of the shared automaton."""
    names = ["ab", "ba", "bb"]
    rules = {"type": "array", "items": {"enum": names}, "uniqueItems": True, "minItems": 3, "maxItems": 3}
    texts = {
        json.dumps([a, b, c], separators=(",", ":")).encode()
        for a in names for b in names for c in names if len({a, b, c}) == 3
    }  # fmt: skip
    for seed in range(6):
        check_along(schema(rules), texts, "espalier", random.Random(seed))


@pytest.mark.parametrize("backend", INSTALLED)
def test_many_alternatives_are_not_told(backend: str) -> None:
    assert matcher_of(regex("x[a-p]y"), backend).branches(9) == tuple(b"x%cy" % byte for byte in range(97, 113))
    assert matcher_of(regex("x[a-q]y"), backend).branches(9) == ()


@pytest.mark.parametrize("backend", INSTALLED)
def test_it_is_refused_where_masks_are(backend: str) -> None:
    ended = matcher_of(regex("a"), backend)
    ended.advance(ord("a"))
    assert ended.branches(5) == ()
    ended.advance(261)
    failed = matcher_of(regex("a"), backend)
    with pytest.raises(GrammarStateError):
        failed.advance(ord("b"))
    for matcher in (ended, failed):
        with pytest.raises(GrammarStateError):
            matcher.branches(5)


def test_a_vocabulary_that_lacks_bytes_leaves_the_others_untold() -> None:
    tokens = tuple(b"" if text in (b"a", b"b") else text for text in TRIE.vocabulary.tokens)
    poor = Vocabulary(tokens=tokens, special_ids=frozenset({261}), eos_ids=(261,), size=270)
    spec = choices("abx", "cx")
    grammar = compile_constraint(spec, TokenTrie.of(poor), limits=ConstraintLimits(), backend="llguidance").grammar
    assert grammar.matcher().branches(5) == ()


def test_looking_ahead_has_bounds_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """What drafts ask for is answered with less, and fails no request."""
    spec = regex("abc(d|e)f")
    compiled = compile_constraint(spec, TRIE, limits=ConstraintLimits(), backend="espalier").grammar.renewed()
    monkeypatch.setattr(matching, "GUESSING", Allowance(0.0, 0.0))
    matcher = compiled.matcher()
    assert matcher.branches(9) == ()
    assert matcher.forced(9) == b""
    for byte in b"abcdf":
        assert byte in matcher.mask()
        matcher.advance(byte)
    assert matcher.is_accepting
