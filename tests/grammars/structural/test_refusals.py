"""What is wrong with markers, counts, tools and contents, each refused under its own field."""

from __future__ import annotations

import pytest

from decoding.errors import ConstraintError, UnsupportedConstraintError
from grammars.constraint import ConstraintKind, ConstraintSpec
from grammars.structural.spec import Reasoning
from grammars.structural.tools import ToolFormat
from tests.grammars.structural.conftest import Make, Q

A = Make.tag("<a>", "a*", "</a>")
NONE = '{"type":"object","minProperties":2,"maxProperties":1}'
BACK = '{"type":"object","properties":{"a":{"pattern":"(a)\\\\1"}}}'


def tags(*given, **options):
    return lambda: Make.tags(*given, **options)


def calls(**options):
    return lambda: Make.calls(**options)


def reasoning(kind=ConstraintKind.JSON_OBJECT, text="", **options):
    return lambda: ConstraintSpec(kind=kind, text=text, reasoning=Reasoning(**options))


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        (tags(Make.tag("", "a", "b")), "structural_tags.tags[0].begin", "is empty"),
        (tags(A, Make.tag("<a>", "b", "!")), "structural_tags.tags[1].begin", r"is also that of tags\[0\]"),
        (tags(Make.tag("<a>x", "b", "!"), A), "structural_tags.tags[0].begin", r"starts with that of tags\[1\]"),
        (tags(A, Make.tag("!<a>", "b", "!")), "structural_tags.tags[0].begin", r"occurs in that of tags\[1\]"),
        (tags(A, triggers=("<b",)), "structural_tags.tags[0].begin", "none of the triggers"),
        (tags(A, triggers=("<", "")), "structural_tags.triggers[1]", "is empty"),
        (tags(A, triggers=("<", "<a")), "structural_tags.triggers[0]", r"occurs in that of triggers\[1\]"),
        (tags(A, triggers=("<", "[")), "structural_tags.triggers[1]", "no tag"),
        (tags(A, least=3, most=2), "structural_tags.min_parts", "above max_parts"),
        (tags(A, separator=","), "structural_tags.separator", "means nothing where free text"),
        (calls(tools={"a": Q, "ab": Q}, format=ToolFormat(begin="[C]{name}", end="!", trigger="[C]")),
         "tool_calls.format.begin", r"starts with that of tools\[0\]"),
        (calls(format=ToolFormat(begin="<|end|>{name} ", end="!", trigger="<|end|>")),
         "tool_calls.format.begin", "ends the model's answer"),
        (tags(A, most=1001), "structural_tags.max_parts", "must be in"),
        (tags(A, max_text_tokens=0), "structural_tags.max_text_tokens", "must be in"),
        (tags(Make.tag("x" * 1025, "a", "b")), "structural_tags.tags[0].begin", "1025 bytes"),
        (tags(Make.tag("<|end|>", "a", "b")), "structural_tags.tags[0].begin", "ends the model's answer"),
        (calls(tools={}), "tool_calls.tools", "at least one"),
        (calls(tools={"a b": Q}), "tool_calls.tools[0].name", "is no name"),
        (calls(tools={"": Q}), "tool_calls.tools[0].name", "is empty"),
        (calls(name="c"), "tool_calls.name", "none of the tools"),
        (calls(most=0), "tool_calls.max_calls", "must be in"),
        (calls(tools={"a": Q, "b": '{"type":["object","null"]}'}), "tool_calls.tools[1].parameters", "no object"),
        (calls(tools={"a": Q, "b": BACK}), "tool_calls.tools[1].parameters", "back-reference"),
        (calls(tools={"a": NONE}), "tool_calls.tools[0].parameters", "impossible"),
        (calls(tools={"a": "{"}), "tool_calls.tools[0].parameters", "JSON"),
        (reasoning(end=""), "reasoning.end", "is empty"),
        (reasoning(end="<|end|>"), "reasoning.end", "ends the model's answer"),
        (reasoning(max_tokens=0), "reasoning.max_tokens", "must be in"),
        (reasoning(ConstraintKind.GRAMMAR, "@json"), "reasoning", "before a grammar"),
    ],
)  # fmt: skip
def test_bad_constraints(spec, field, message, compiled):
    with pytest.raises(ConstraintError, match=message) as caught:
        compiled(spec())
    assert caught.value.field == f"constraint.{field}"


@pytest.mark.parametrize(
    ("content", "end", "message"),
    [
        ("a</a>b", "</a>", "without the tag's end"),
        ("a(?!a)a", "</a>", "matches no text at all"),
        ("a", "", "give the tag an end"),
        (r"x\[OTHER\]", "[OTHER]", "without the tag's end"),
        (("ok", "not</a>ok"), "</a>", r"holds the tag's end '</a>' in values\[1\]"),
        (("ok", "[OTHER]!"), "[OTHER]", r"in values\[1\]"),
        ('{"type":"integer"}', "", "may be a number"),
        ('{"type":"integer"}', "0", "may be a number"),
        ('{"type":["string","number"]}', ".", "may be a number"),
    ],
)
def test_bad_contents(content, end, message, compiled):
    kind = "choices" if isinstance(content, tuple) else "json_schema" if content.startswith("{") else "regex"
    tag = Make.tag("<a>", content, end)
    path = f"constraint.structural_tags.tags[1].{kind}"
    object.__setattr__(tag.content, "at", path)
    with pytest.raises(ConstraintError, match=message) as caught:
        compiled(Make.tags(Make.tag("<b>", None, ""), tag))
    assert caught.value.field == path


def test_a_content_that_may_hold_its_end_stops_before_it(compiled, legal):
    """The content of itself could go on for ever; a text is read up to the first end."""
    matcher = compiled(Make.tags(Make.tag("<", ".*", ">"), most=1)).grammar.matcher()
    for byte in b"<x":
        matcher.advance(byte)
    assert not matcher.is_accepting
    matcher.advance(ord(">"))
    assert matcher.is_accepting


def test_an_unsupported_keyword_names_its_tool_and_pointer(compiled):
    with pytest.raises(UnsupportedConstraintError) as caught:
        compiled(Make.calls(tools={"a": Q, "b": BACK}))
    assert (caught.value.field, caught.value.pointer) == (
        "constraint.tool_calls.tools[1].parameters",
        "/properties/a/pattern",
    )
    unenforced = compiled(Make.calls(tools={"a": Q, "b": BACK}, best_effort=True)).unenforced
    assert [(item.field, item.pointer, item.keyword) for item in unenforced] == [
        ("constraint.tool_calls.tools[1].parameters", "/properties/a/pattern", "pattern")
    ]


@pytest.mark.parametrize(
    ("form", "field", "message"),
    [
        ({"begin": "<f>"}, "begin", "0 times"),
        ({"begin": "<{name}{name}>"}, "begin", "2 times"),
        ({"begin": "{name}(", "trigger": ""}, "begin", "starts with"),
        ({"begin": "<{name}>", "trigger": "["}, "trigger", "must be the start"),
    ],
)
def test_bad_formats_of_calls(form, field, message):
    with pytest.raises(ConstraintError, match=message) as caught:
        ToolFormat(**form)
    assert caught.value.field == f"constraint.tool_calls.format.{field}"


def test_keys_tell_constraints_apart():
    specs = [
        Make.tags(A),
        Make.tags(A, most=1),
        Make.tags(A, triggers=("<",)),
        Make.tags(Make.tag("<a>", "a*", "</a")),
        Make.tags(Make.tag("<a>", "a+", "</a>")),
        Make.tags(A, reasoning=Reasoning()),
        Make.tags(A, reasoning=Reasoning(max_tokens=1)),
        Make.calls(),
        Make.calls(name="b"),
        Make.content(Q),
        Make.content(Q, reasoning=Reasoning()),
    ]
    assert len({spec.key(fingerprint="", backend="") for spec in specs}) == len(specs)
    same = [Make.calls(tools={"a": Q}), Make.calls(tools={"a": Q.replace(":", " : ")})]
    assert len({spec.key(fingerprint="", backend="") for spec in same}) == 1
