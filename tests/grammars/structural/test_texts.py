"""Whole texts drawn through the masks, read by parsers of their own: regular expressions, json and jsonschema."""

from __future__ import annotations

import json
import re

import jsonschema
import pytest

from grammars.structural.layout import Piece
from grammars.structural.spec import Reasoning
from grammars.structural.tools import ToolChoice, ToolFormat
from tests.grammars.structural.conftest import CALL, EOS, OTHER, THINK, Q

CALL_PATTERN = re.compile(
    r'<tool_call>\n\{"name": "(?P<name>\w+)", "arguments": (?P<arguments>\{.*?\})\}\n</tool_call>', re.DOTALL
)
SCHEMAS = {"add": json.loads(Q), "b": json.loads(Q.replace("integer", "boolean"))}


def parsed_calls(text: str) -> tuple[str, list[tuple[str, dict]]]:
    """The free text before the calls, and the calls, one line break between them."""
    first = text.find("<tool_call>")
    free, rest = (text, "") if first < 0 else (text[:first], text[first:])
    calls = []
    while rest:
        match = CALL_PATTERN.match(rest)
        assert match, rest
        arguments = json.loads(match["arguments"])
        jsonschema.validate(arguments, SCHEMAS[match["name"]])
        calls.append((match["name"], arguments))
        rest = rest[match.end() :]
        if rest:
            assert rest.startswith("\n<")
            rest = rest[1:]
    return free, calls


@pytest.mark.parametrize(
    ("options", "least", "most", "has_text", "names"),
    [
        ({}, 0, 16, True, {"add", "b"}),
        ({"most": 2}, 0, 2, True, {"add", "b"}),
        ({"choice": ToolChoice.REQUIRED, "most": 3}, 1, 3, False, {"add", "b"}),
        ({"choice": ToolChoice.NONE}, 0, 0, True, set()),
        ({"name": "b"}, 1, 1, False, {"b"}),
    ],
    ids=str,
)
def test_tool_calls(options, least, most, has_text, names, make, walk, compiled):
    layout = compiled(make.calls(**options)).layout
    seen, counts = set(), set()
    for seed in range(12):
        walked = walk(make.calls(**options), seed)
        if walked is None:
            continue
        text, _ = walked
        free, calls = parsed_calls(text)
        assert least <= len(calls) <= most
        assert has_text or not free
        seen |= {name for name, _ in calls}
        counts.add(len(calls))
        pieces = layout.read(text).pieces
        read = [(layout.tags[p.tag].name, json.loads(p.text)) for p in pieces if p.tag is not None]
        assert read == calls
        assert "".join(p.text for p in pieces if p.tag is None) == free
    assert counts
    assert seen <= names
    assert seen == names or least == 0 or names == {"add", "b"}


def test_calls_with_special_tokens_around_them(make, walk, compiled, shown):
    form = ToolFormat(begin="[CALL]{name}[OTHER]", end="", separator="", trigger="")
    spec = make.calls(format=form, choice=ToolChoice.REQUIRED, most=3)
    for seed in range(8):
        text, tokens = walk(spec, seed, least=3) or ("", [])
        if not text:
            continue
        pieces = text.split("[CALL]")[1:]
        for piece in pieces:
            name, _, arguments = piece.partition("[OTHER]")
            jsonschema.validate(json.loads(arguments), SCHEMAS[name])
        assert tokens.count(CALL) == tokens.count(OTHER) == len(pieces) == len(compiled(spec).layout.read(text).pieces)


def test_reasoning_ends_with_a_special_token_that_nothing_else_spells(make, compiled, legal, shown):
    spec = make.content(Q, reasoning=Reasoning(end="</thought>\n"))
    matcher = compiled(spec).grammar.matcher()
    for byte in b"so </thought":
        assert {THINK, byte} <= set(legal(matcher))
        matcher.advance(byte)
    assert ord(">") not in legal(matcher)
    assert not {CALL, OTHER, EOS} & set(legal(matcher))
    matcher.advance(THINK)
    assert legal(matcher) == [ord("\n")]
    assert matcher.forced(9) == b'\n{"q":'
    for byte in b'\n{"q":7}':
        assert THINK not in legal(matcher)
        matcher.advance(byte)
    assert matcher.only_end()
    reading = compiled(spec).layout.read('so </thought</thought>\n{"q":7}')
    assert (reading.reasoning, reading.content) == ("so </thought", '{"q":7}')


def test_nothing_is_forced_where_only_a_special_token_is(make, compiled):
    matcher = compiled(make.content("a+", reasoning=Reasoning(begin="[CALL]", end="</thought>"))).grammar.matcher()
    assert matcher.forced(8) == b""
    assert matcher.branches(8) == ()
    matcher.advance(CALL)
    assert matcher.forced(8) == b""


def test_an_end_marker_may_come_in_the_middle_of_tokens(make, compiled, vocabulary):
    """ "ok</th" "ink>{" hold the last of the reasoning, its end, and the first of the object."""
    token = {text: index for index, text in enumerate(vocabulary.tokens) if text}
    matcher = compiled(make.content(Q, reasoning=Reasoning())).grammar.matcher()
    for text in (b"ok</th", b"ink>{", b'"', b"q", b'"', b":", b"1}"):
        assert token[text] in matcher.mask()
        matcher.advance(token[text])
    assert matcher.only_end()


def test_one_token_may_hold_a_part_its_end_text_and_the_next_begin(make, compiled, vocabulary):
    token = {text: index for index, text in enumerate(vocabulary.tokens) if text}
    tags = make.tag("<a>", "[ab]*", "</a>"), make.tag("<b>", None, "</b>")
    grammar = compiled(make.tags(*tags, most=4)).grammar
    matcher = grammar.matcher()
    for text in (b"x<a>", b"ba</a>", b"<b>{", b"}", b"</", b"b", b">", b"<b>{"):
        assert token[text] in matcher.mask()
        matcher.advance(token[text])
    assert token[b"{}</b><a>ab"] not in matcher.mask()
    assert token[b"}"] in matcher.mask()
    for text in (b"}", b"</", b"b", b">", b"<a>"):
        matcher.advance(token[text])
    matcher.advance(token[b"ba</a>"])
    assert token[b"x<a>"] not in matcher.mask(), "there were four parts"
    assert token[b"</a>y"] in matcher.mask(), "it is text like any other"


@pytest.mark.parametrize("limit", [1, 3])
def test_reasoning_is_closed_when_its_tokens_are_spent(limit, make, compiled, vocabulary, legal):
    token = {text: index for index, text in enumerate(vocabulary.tokens) if text}
    matcher = compiled(make.content("a+", reasoning=Reasoning(max_tokens=limit))).grammar.matcher()
    for _ in range(limit - 1):
        matcher.advance(token[b"hm, "])
    matcher.advance(token[b"ok</th"])
    assert set(legal(matcher)) == {ord("i")}, "the rest of the end that has begun; ink>{ leads to no text"
    matcher.rollback(1)
    matcher.advance(0xC3)
    assert all(0x80 <= text[0] < 0xC0 for t in legal(matcher) if (text := vocabulary.tokens[t]))
    matcher.advance(0xA9)
    assert set(legal(matcher)) == {ord("<"), token[b"</"], token[b"</think>"]}
    matcher.advance(token[b"</think>"])
    assert legal(matcher) == [ord("a")]


def test_the_budget_counts_along_forks_and_back(make, compiled, vocabulary):
    token = {text: index for index, text in enumerate(vocabulary.tokens) if text}
    matcher = compiled(make.content("a+", reasoning=Reasoning(begin="<a>", max_tokens=2))).grammar.matcher()
    matcher.advance(token[b"<a>"])
    matcher.advance(token[b"ab"])
    fork = matcher.fork()
    for one in (matcher, fork):
        assert token[b"ab"] in one.mask()
        one.advance(token[b"ab"])
        assert token[b"ab"] not in one.mask()
    matcher.rollback(1)
    assert token[b"ab"] in matcher.mask()


def test_free_text_is_closed_when_its_tokens_are_spent(make, compiled, vocabulary, legal):
    token = {text: index for index, text in enumerate(vocabulary.tokens) if text}
    spec = make.tags(make.tag("<a>", "b", "</a>"), least=1, most=2, max_text_tokens=2)
    matcher = compiled(spec).grammar.matcher()
    for _ in range(2):
        assert EOS not in legal(matcher)
        matcher.advance(token[b"hm, "])
    assert set(legal(matcher)) == {ord("<"), token[b"<a"], token[b"<a>"]}
    for text in (b"<a>", b"b", b"</a>y"):
        matcher.advance(token[text])
    assert token[b"hm, "] in legal(matcher), "the next run has tokens of its own"
    matcher.advance(token[b"hm, "])
    assert set(legal(matcher)) == {EOS, ord("<"), token[b"<a"], token[b"<a>"]}
    for text in (b"<a>", b"b", b"</", b"a>", b"ab", b"ab"):
        matcher.advance(token[text])
    assert matcher.only_end(), "no part may come any more"


def test_texts_that_were_cut_are_read_as_far_as_they_go(make, compiled):
    layout = compiled(make.calls(reasoning=Reasoning())).layout
    assert layout.read("I thi").reasoning == "I thi"
    assert layout.read("I thi").pieces == ()
    whole = '</think>x<tool_call>\n{"name": "add", "arguments": {"q":1}}\n</tool_call>'
    call, cut = Piece(text='{"q":1}', tag=0), Piece(text='{"q":1}', tag=0, is_whole=False)
    assert layout.read(whole).pieces == (Piece(text="x"), call)
    assert layout.read(whole[:-1]).pieces == (Piece(text="x"), cut)
    assert layout.read(whole[:-14]).pieces == (Piece(text="x"), Piece(text='{"q":1}', tag=0, is_whole=False))
    assert layout.read(whole[:-15]).pieces == (Piece(text="x"), Piece(text='{"q":1', tag=0, is_whole=False))


def test_json_may_hold_its_own_end_marker(make, compiled):
    schema = '{"type":"object","properties":{"q":{"type":"string"}},"required":["q"]}'
    layout = compiled(make.tags(make.tag("<a>", schema, "</a>"))).layout
    content = '{"q":"</a>[{\\""}'
    assert layout.read(f"<a>{content}</a>.").pieces == (Piece(text=content, tag=0), Piece(text="."))
