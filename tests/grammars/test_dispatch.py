"""Every kind and backend through `compile_constraint`, and our automata against those of others."""

from __future__ import annotations

import itertools
import json
import random
import re

import interegular
import pytest

from decoding.errors import ConstraintError, UnsupportedConstraintError
from grammars.compiling.dispatch import BACKENDS, compile_constraint, is_installed
from grammars.compiling.messages import pack, shared_objects, unpack
from grammars.compiling.result import Compilation
from grammars.constraint import ConstraintKind, ConstraintSpec, Formats, PropertyOrder, RegexDialect, Whitespace
from grammars.limits import ConstraintLimits
from grammars.matching.automaton import PushdownAutomaton
from grammars.matching.trie import TokenTrie
from grammars.vocabulary import Vocabulary

INSTALLED = [name for name in BACKENDS if is_installed(name)]
SCHEMA = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False}


def spec(kind: str, content: object = None, **options: object) -> ConstraintSpec:
    if kind == "choices":
        return ConstraintSpec(kind=ConstraintKind.CHOICES, values=content, **options)
    return ConstraintSpec(kind=ConstraintKind(kind), text=content or "", **options)


def compiled(trie: TokenTrie, constraint: ConstraintSpec, backend: str = "espalier") -> Compilation:
    return compile_constraint(constraint, trie, limits=ConstraintLimits(), backend=backend)


def accepted(compilation: Compilation, text: str) -> bool:
    """Byte by byte; in the fixture's vocabulary the id of a single byte is the byte."""
    matcher = compilation.grammar.matcher()
    for byte in text.encode():
        if byte not in matcher.mask():
            return False
        matcher.advance(byte)
    return matcher.is_accepting


@pytest.mark.parametrize("backend", INSTALLED)
@pytest.mark.parametrize(
    ("constraint", "good", "bad"),
    [
        (spec("choices", ("yes", "no")), ["yes", "no"], ["", "y", "yesno", "maybe"]),
        (spec("regex", "[a-c]{2}(x|yz)"), ["abx", "ccyz"], ["ab", "abxx", "abyx"]),
        (spec("json_schema", json.dumps(SCHEMA)), ['{"a":true}', '{"a":false}'], ["{}", '{"a": true}', '{"a":1}']),
    ],
    ids=["choices", "regex", "schema"],
)
def test_each_kind(trie: TokenTrie, backend: str, constraint: ConstraintSpec, good: list[str], bad: list[str]) -> None:
    if backend == "outlines-core" and constraint.kind is ConstraintKind.JSON_SCHEMA:
        constraint = spec("json_schema", json.dumps({key: SCHEMA[key] for key in ("type", "properties", "required")}))
    compilation = compiled(trie, constraint, backend)
    assert [text for text in (*good, *bad) if accepted(compilation, text)] == good
    assert compilation.unenforced == ()
    assert compilation.grammar.num_states >= 1
    assert compilation.grammar.num_bytes > 0


def test_any_json_object_in_every_layout(trie: TokenTrie) -> None:
    texts = {"compact": '{"a":[1,{}]}', "spaced": '{"a": [1, {}]}', "flexible": '{ "a":[1 ,{}]}'}
    for layout in Whitespace:
        compilation = compiled(trie, spec("json_object", whitespace=layout))
        assert accepted(compilation, texts[layout.value])
        assert not accepted(compilation, "[]")
    assert not accepted(compiled(trie, spec("json_object")), texts["spaced"])


def test_best_effort_reports_what_the_default_refuses(trie: TokenTrie) -> None:
    schema = '{"type": "integer", "minimum": 2}'
    with pytest.raises(UnsupportedConstraintError):
        compiled(trie, spec("json_schema", schema), "outlines-core")
    compilation = compiled(trie, spec("json_schema", schema, best_effort=True), "outlines-core")
    assert [entry.keyword for entry in compilation.unenforced] == ["minimum"]


OPTIONS = {
    "property_order": ({"property_order": PropertyOrder.ANY}, '{"b":1,"a":1}'),
    "formats": ({"formats": Formats.ANNOTATE}, '{"a":"x"}'),
    "integral_floats": ({"integral_floats": True}, '{"a":1.0}'),
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("backend", INSTALLED)
def test_an_option_of_schemas_is_followed_or_refused_by_name(trie: TokenTrie, backend: str, name: str) -> None:
    option, text = OPTIONS[name]
    rule = {"anyOf": [{"type": "integer"}, {"type": "string", "format": "date"}]}
    schema = json.dumps({"type": "object", "properties": {"a": rule, "b": {"type": "integer"}}})
    if backend != "espalier":
        with pytest.raises(UnsupportedConstraintError, match=f"not known to {backend}; use") as caught:
            compiled(trie, spec("json_schema", schema, **option), backend)
        assert caught.value.field == f"constraint.{name}"
        return
    assert not accepted(compiled(trie, spec("json_schema", schema)), text)
    assert accepted(compiled(trie, spec("json_schema", schema, **option)), text)


@pytest.mark.parametrize("backend", INSTALLED)
def test_a_dialect_is_followed_or_refused_by_name(trie: TokenTrie, backend: str) -> None:
    arabic = spec("regex", "\\d", dialect=RegexDialect.ECMA)
    assert accepted(compiled(trie, spec("regex", "\\d"), backend), "٣")
    if backend == "outlines-core":
        with pytest.raises(UnsupportedConstraintError, match="ecma is not known to outlines-core"):
            compiled(trie, arabic, backend)
        return
    assert accepted(compiled(trie, arabic, backend), "3")
    assert not accepted(compiled(trie, arabic, backend), "٣")


@pytest.mark.parametrize(
    ("backend", "message"), [("espalier", "vocabulary lacks tokens"), ("llguidance", "cannot begin")]
)
def test_what_the_vocabulary_cannot_begin_is_refused(backend: str, message: str) -> None:
    tiny = Vocabulary(tokens=(b"", b"a"), special_ids=frozenset({0}), eos_ids=(0,), size=4)
    with pytest.raises(ConstraintError, match=message):
        compiled(TokenTrie.of(tiny), spec("regex", "ba"), backend)


@pytest.mark.parametrize(
    "constraint",
    [spec("choices", ("yes", "no")), spec("regex", "[a-cé]{2}(x|yz)"), spec("json_schema", json.dumps(SCHEMA))],
    ids=["choices", "regex", "schema"],
)
def test_the_first_mask_travels_and_the_others_are_built_again(
    trie: TokenTrie, constraint: ConstraintSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = compiled(trie, constraint).grammar.matcher()
    packed = pack(compiled(trie, constraint).grammar, shared_objects(trie))
    there = unpack(packed, shared_objects(trie)).matcher()
    with monkeypatch.context() as patch:
        patch.setattr(PushdownAutomaton, "walk", lambda *_: pytest.fail("the first row was computed again"))
        assert there.mask().bits_W.tolist() == here.mask().bits_W.tolist()
        assert not there.mask().bits_W.flags.writeable
    while not here.is_finished:
        token = here.mask().legal.tolist()[-1]
        for matcher in (here, there):
            matcher.advance(token)
        assert here.is_finished or there.mask().bits_W.tolist() == here.mask().bits_W.tolist()


@pytest.mark.parametrize(
    "pattern",
    ["(ab|a)*c", "a{2,4}b?c{0,2}", "[^b]?[ab]+c", "(a|b)(?:c|(ab){2})", "(?:a(?:b(?:c)?)?)?", "a.c", "(b|c)*a{3}"],
)
def test_automata_equal_those_of_interegular(trie: TokenTrie, pattern: str) -> None:
    oracle = interegular.parse_pattern(pattern).to_fsm()
    compilation = compiled(trie, spec("regex", pattern))
    for length in range(7):
        for text in map("".join, itertools.product("abc", repeat=length)):
            assert accepted(compilation, text) == oracle.accepts(text), text


@pytest.mark.parametrize("pattern", ["(ab|aab)x", "a{2,5}b", '\\{"a":(true|null)\\}', "[é🙂]{3}!", "[0-9]{2,3}[a-c]"])
def test_masks_equal_those_of_outlines_core(trie: TokenTrie, pattern: str) -> None:
    """On patterns in which no text is complete before its end, where outlines-core is right."""
    ours, theirs = (compiled(trie, spec("regex", pattern), name).grammar for name in ("espalier", "outlines-core"))
    draw = random.Random(11)
    for _ in range(20):
        left, right = ours.matcher(), theirs.matcher()
        text = b""
        while not left.is_finished:
            assert left.mask().bits_W.tolist() == right.mask().bits_W.tolist()
            assert (left.is_accepting, left.only_end()) == (right.is_accepting, right.only_end())
            token = draw.choice(left.mask().legal.tolist())
            for matcher in (left, right):
                matcher.advance(token)
            text += trie.vocabulary.tokens[token]
        assert re.fullmatch(pattern, text.decode())
