from __future__ import annotations

import dataclasses
import enum
import json
from types import MappingProxyType
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ConfigDict, RootModel, TypeAdapter, WithJsonSchema
from typing_extensions import TypedDict

from service.client import (
    CompiledConstraint,
    InvalidArgumentError,
    Notation,
    Options,
    Reasoning,
    RegexDialect,
    Request,
    StructuralTags,
    Tag,
    Tool,
    ToolCallFormat,
    ToolCalls,
    Whitespace,
)
from service.client.constraint import ConstraintOptions
from service.client.request import SamplingOptions
from service.v1 import common_pb2, generation_pb2


class Person(BaseModel):
    name: str
    age: int


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


@dataclasses.dataclass
class Point:
    x: int
    y: int


HANDLE = CompiledConstraint(
    handle="abc", compile_ms=1.0, cached=False, size_bytes=1, states=1, unenforced=(), parser=json.loads
)
CONSTRAINTS = {
    "schema": {"type": "object"},
    "regex": "a+",
    "choices": ["yes", "no"],
    "json_object": True,
    "grammar": 'root ::= "a"',
    "constraint": HANDLE,
}
SAMPLING = {
    "max_tokens": 7,
    "min_tokens": 0,
    "temperature": 0.0,
    "top_k": 5,
    "top_p": 0.5,
    "min_p": 0.25,
    "repetition_penalty": 1.5,
    "presence_penalty": -0.5,
    "frequency_penalty": 0.75,
    "logit_bias": {3: -2.0, 9: 4.0},
    "bad_words": ["foo", "bar baz"],
    "seed": 2**64 - 1,
    "logprobs": 0,
    "ignore_eos": False,
    "finish_within_limit": False,
    "stop": ["END", "\n\n"],
}


def test_prompt_kinds():
    assert Request("hello").message.text == "hello"
    assert list(Request(tokens=[1, 2]).message.tokens.ids) == [1, 2]
    chat = Request(chat=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]).message.chat
    assert [(turn.role, turn.content) for turn in chat.messages] == [("system", "Be brief."), ("user", "Hi")]


@pytest.mark.parametrize("prompt", [{"prompt": ""}, {"tokens": []}, {"chat": []}])
def test_an_empty_prompt_is_sent_as_such_so_that_the_server_judges_it(prompt):
    assert Request(**prompt).message.WhichOneof("prompt") is not None


def test_every_sampling_option_of_the_wire_is_an_option_and_arrives():
    names = set(generation_pb2.SamplingOptions.DESCRIPTOR.fields_by_name)
    assert names == set(SamplingOptions.__annotations__) == set(SAMPLING)
    sampling = Request("p", **SAMPLING).message.sampling
    for name, value in SAMPLING.items():
        sent = getattr(sampling, name)
        if name == "bad_words":
            sent = sent.words
        assert (dict(sent) if name == "logit_bias" else list(sent) if isinstance(value, list) else sent) == value
        if name not in {"logit_bias", "stop"}:
            assert sampling.HasField(name)


def test_absent_and_none_options_leave_no_trace_on_the_wire():
    assert Request("p", temperature=None, stop=None, n=None).message == generation_pb2.GenerateRequest(text="p")


def test_request_options():
    message = Request("p", n=3, priority=-5, tenant="t", model="m").message
    assert (message.n, message.priority, message.tenant, message.model) == (3, -5, "t", "m")
    assert Request("p", n=3).num_samples == 3
    assert Request("p").num_samples == 1


@pytest.mark.parametrize("first", CONSTRAINTS)
@pytest.mark.parametrize("second", CONSTRAINTS)
def test_two_constraints_are_refused(first, second):
    both = {first: CONSTRAINTS[first], second: CONSTRAINTS[second]}
    if first == second:
        assert Request("p", **both).message.constraint.WhichOneof("kind") is not None
        return
    with pytest.raises(InvalidArgumentError) as caught:
        Request("p", **both)
    assert caught.value.field == "constraint"
    assert first in str(caught.value)
    assert second in str(caught.value)


@pytest.mark.parametrize(
    ("prompts", "named"),
    [({}, "missing"), ({"prompt": "a", "tokens": [1]}, "tokens"), ({"tokens": [1], "chat": []}, "chat")],
)
def test_exactly_one_prompt(prompts, named):
    with pytest.raises(InvalidArgumentError, match=named) as caught:
        Request(**prompts)
    assert caught.value.field == "prompt"


def test_the_options_of_a_constraint():
    constraint = Request("p", json_object=True, whitespace="spaced", best_effort=True).message.constraint
    assert constraint.whitespace == common_pb2.WHITESPACE_POLICY_SPACED
    assert constraint.best_effort
    for policy in Whitespace:
        sent = Request("p", json_object=True, whitespace=policy).message.constraint.whitespace
        assert common_pb2.WhitespacePolicy.Name(sent) == f"WHITESPACE_POLICY_{policy.name}"
    order = Request("p", schema={}, property_order="any", formats="annotate", integral_floats=True).message.constraint
    assert order.property_order == common_pb2.PROPERTY_ORDER_ANY
    assert order.formats == common_pb2.FORMAT_POLICY_ANNOTATE
    assert order.integral_floats
    for dialect in RegexDialect:
        sent = Request("p", regex="a", regex_dialect=dialect).message.constraint.regex_dialect
        assert common_pb2.RegexDialect.Name(sent) == f"REGEX_DIALECT_{dialect.name}"
    for useless in (
        {"whitespace": "compact"},
        {"best_effort": True},
        {"property_order": "any"},
        {"formats": "assert"},
        {"integral_floats": True},
        {"regex_dialect": "ecma"},
    ):
        with pytest.raises(InvalidArgumentError, match="need a constraint"):
            Request("p", **useless)


def test_a_grammar_and_its_options():
    grammar = Request("p", grammar="start: A", notation="lark", start="a").message.constraint.grammar
    assert (grammar.text, grammar.start) == ("start: A", "a")
    assert Request("p", grammar="@sql").message.constraint.grammar == common_pb2.Grammar(text="@sql")
    for notation in Notation:
        sent = Request("p", grammar="g", notation=notation).message.constraint.grammar.notation
        assert common_pb2.GrammarNotation.Name(sent) == f"GRAMMAR_NOTATION_{notation.name}"
    for useless in ({"notation": "gbnf"}, {"start": "a"}):
        with pytest.raises(InvalidArgumentError, match="need a grammar"):
            Request("p", regex="a", **useless)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"max_tokens": -1}, "sampling.max_tokens"),
        ({"max_tokens": 2**32}, "sampling.max_tokens"),
        ({"temperature": "warm"}, "sampling.temperature"),
        ({"seed": -1}, "sampling.seed"),
        ({"logit_bias": {-1: 1.0}}, "sampling.logit_bias"),
        ({"stop": "END"}, "sampling.stop"),
        ({"bad_words": "foo"}, "sampling.bad_words"),
        ({"bad_words": [1]}, "sampling.bad_words"),
        ({"n": -1}, "n"),
        ({"tenant": 5}, "tenant"),
        ({"grammar": 1}, "constraint.grammar"),
        ({"grammar": "g", "notation": "ebnf"}, "constraint.grammar.notation"),
        ({"grammar": "g", "start": 1}, "constraint.grammar.start"),
        ({"choices": "yes"}, "constraint.choices"),
        ({"choices": [1, 2]}, "constraint.choices"),
        ({"regex": 5}, "constraint.regex"),
        ({"regex": "\ud800"}, "constraint.regex"),
        ({"json_object": True, "whitespace": "tabs"}, "constraint.whitespace"),
        ({"schema": {}, "property_order": "random"}, "constraint.property_order"),
        ({"schema": {}, "formats": 1}, "constraint.formats"),
        ({"schema": {}, "integral_floats": "yes"}, "constraint.integral_floats"),
        ({"regex": "a", "regex_dialect": "perl"}, "constraint.regex_dialect"),
        ({"schema": {"a": float("nan")}}, "constraint.json_schema"),
        ({"schema": {"a": object()}}, "constraint.json_schema"),
        ({"schema": 5}, "constraint.json_schema"),
        ({"schema": "\ud800"}, "constraint.json_schema"),
    ],
)
def test_what_protobuf_cannot_carry_is_refused_by_field(options, field):
    with pytest.raises(InvalidArgumentError) as caught:
        Request("p", **options)
    assert caught.value.field == field
    assert str(caught.value).startswith(field)


@pytest.mark.parametrize(
    ("prompt", "field"),
    [
        ({"prompt": "\ud800"}, "text"),
        ({"tokens": [-1]}, "tokens.ids"),
        ({"chat": [{"role": "user", "content": 5}]}, "chat.messages"),
        ({"chat": [{"role": "user", "text": "hi"}]}, "chat.messages"),
    ],
)
def test_what_protobuf_cannot_carry_is_refused_in_prompts_too(prompt, field):
    with pytest.raises(InvalidArgumentError) as caught:
        Request(**prompt)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"prompt": "a\ud800"}, "text"),
        ({"chat": [{"role": "user", "content": "a\ud800"}]}, "chat.messages"),
        ({"prompt": "p", "schema": "a\ud800"}, "constraint.json_schema"),
        ({"prompt": "p", "choices": ["a\ud800"]}, "constraint.choices"),
        ({"prompt": "p", "stop": ["a\ud800"]}, "sampling.stop"),
        ({"prompt": "p", "tenant": "a\ud800"}, "tenant"),
    ],
)
def test_a_lone_surrogate_is_named_with_its_place_and_mend(options, field):
    with pytest.raises(InvalidArgumentError) as caught:
        Request(**options)
    assert str(caught.value) == (
        f"{field}: has a lone surrogate ('\\ud800' at character 1), which UTF-8 cannot hold; "
        "remove it or replace it by its character"
    )


def test_a_mapping_nested_too_deep_for_json_is_refused():
    schema: dict = {}
    for _ in range(100_000):
        schema = {"not": schema}
    with pytest.raises(InvalidArgumentError, match="json_schema"):
        Request("p", schema=schema)


def test_a_misspelt_option_is_a_type_error():
    with pytest.raises(TypeError, match="temprature"):
        Request("p", temprature=1.0)
    assert set(Options.__annotations__) >= set(ConstraintOptions.__annotations__)


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        (Person, '{"name":"Ann","age":3}', Person(name="Ann", age=3)),
        (list[Person], '[{"name":"Ann","age":3}]', [Person(name="Ann", age=3)]),
        (TypeAdapter(Person | Point), '{"x":1,"y":2}', Point(1, 2)),
        (Point, '{"x":1,"y":2}', Point(1, 2)),
        (Colour, '"green"', Colour.GREEN),
        (Person.model_json_schema(), '{"name":"Ann","age":3}', {"name": "Ann", "age": 3}),
        (MappingProxyType({"type": "array", "items": MappingProxyType({})}), "[1]", [1]),
        ('{"type": "integer"}', "12", 12),
    ],
)
def test_a_schema_gives_json_schema_text_and_the_parser_of_its_type(schema, text, value):
    request = Request("p", schema=schema)
    json.loads(request.message.constraint.json_schema)
    assert request.parser(text) == value


def sent_schema(schema):
    return json.loads(Request("p", schema=schema).message.constraint.json_schema)


def test_schema_texts():
    assert sent_schema(Person) == Person.model_json_schema() | {"additionalProperties": False}
    assert sent_schema(Person.model_json_schema()) == Person.model_json_schema()
    assert Request("p", schema="{not json").message.constraint.json_schema == "{not json"
    assert Request("p", schema={"const": "é"}).message.constraint.json_schema == '{"const": "é"}'


class Movement(TypedDict):
    name: str


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")

    name: str


class ByHand(BaseModel):
    model_config = ConfigDict(json_schema_extra={"additionalProperties": {"type": "null"}})

    name: str
    parts: Annotated[dict[str, Any], WithJsonSchema({"type": "object", "properties": {"a": {}}})]


class Everything(BaseModel):
    author: Person
    corner: Point
    movement: Movement
    others: list[Person | None]
    open: Open
    by_hand: ByHand
    ages: dict[str, int]
    example: dict[str, Any] = {"properties": {"x": 1}}


def test_objects_of_types_are_closed_wherever_they_are_and_what_a_type_says_stands():
    sent = sent_schema(Everything)
    closed = {name for name, schema in sent["$defs"].items() if schema["additionalProperties"] is False}
    assert closed == {"Person", "Point", "Movement"}
    assert sent["additionalProperties"] is False
    assert sent["$defs"]["Open"]["additionalProperties"] is True
    assert sent["$defs"]["ByHand"]["additionalProperties"] == {"type": "null"}
    assert "additionalProperties" not in sent["$defs"]["ByHand"]["properties"]["parts"]
    assert sent["properties"]["ages"]["additionalProperties"] == {"type": "integer"}
    assert sent["properties"]["example"]["default"] == {"properties": {"x": 1}}


def test_lists_unions_and_roots_of_types_are_closed_too():
    assert sent_schema(list[Person])["$defs"]["Person"]["additionalProperties"] is False
    assert sent_schema(TypeAdapter(Person | Point))["$defs"]["Point"]["additionalProperties"] is False
    assert sent_schema(RootModel[Person])["$defs"]["Person"]["additionalProperties"] is False
    assert sent_schema(RootModel[dict[str, int]])["additionalProperties"] == {"type": "integer"}


@pytest.mark.parametrize(
    ("options", "text", "value"),
    [
        ({}, "abc", "abc"),
        ({"regex": "a+"}, "aa", "aa"),
        ({"choices": ["1"]}, "1", "1"),
        ({"json_object": True}, "{}", {}),
    ],
)
def test_the_parser_of_other_kinds(options, text, value):
    assert Request("p", **options).parser(text) == value


def test_a_compiled_constraint_sends_its_handle_and_keeps_its_parser():
    request = Request("p", constraint=HANDLE)
    assert request.message.constraint.compiled == "abc"
    assert request.parser is HANDLE.parser


def test_repr_shows_the_request():
    assert "hello" in repr(Request("hello", max_tokens=3))


def test_tools_tags_and_reasoning_are_written_down():
    calls = ToolCalls(
        tools=[Tool(name="f", parameters=Person, description="d"), Tool(name="g")],
        choice="required",
        max_calls=2,
        format=ToolCallFormat(begin="<{name}>", end="!", separator=",", trigger="<"),
        max_text_tokens=5,
    )
    sent = Request("p", tool_calls=calls, reasoning=Reasoning(begin="a", end="b", max_tokens=3)).message.constraint
    assert [(tool.name, tool.description) for tool in sent.tool_calls.tools] == [("f", "d"), ("g", "")]
    assert json.loads(sent.tool_calls.tools[0].parameters)["additionalProperties"] is False
    assert sent.tool_calls.tools[1].parameters == ""
    assert (sent.tool_calls.choice, sent.tool_calls.max_calls) == (common_pb2.TOOL_CHOICE_REQUIRED, 2)
    assert sent.tool_calls.format == common_pb2.ToolCallFormat(begin="<{name}>", end="!", separator=",", trigger="<")
    assert sent.reasoning == common_pb2.Reasoning(begin="a", end="b", max_tokens=3)
    tags = StructuralTags(
        tags=[
            Tag(begin="1", end="2", regex="a"),
            Tag(begin="3", json_object=True),
            Tag(begin="4", end="5", choices=["x"]),
            Tag(begin="6", schema={"type": "null"}),
        ],
        triggers=["1"],
        min_parts=1,
        no_text_between=True,
        separator=";",
    )
    sent = Request("p", structural_tags=tags).message.constraint.structural_tags
    kinds = ["regex", "json_object", "choices", "json_schema"]
    assert [tag.WhichOneof("content") for tag in sent.tags] == kinds
    assert (sent.min_parts, sent.no_text_between, sent.separator) == (1, True, ";")
    assert not sent.HasField("max_parts")


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"tool_calls": ToolCalls(tools=[Tool(name="f", parameters={"a": {1, 2}})])}, "tool_calls.tools[0].parameters"),
        ({"tool_calls": ToolCalls(tools=[Tool(name=3)])}, "tool_calls.tools[0]"),
        ({"tool_calls": ToolCalls(tools=[Tool(name="f")], choice="some")}, "tool_calls.choice"),
        ({"structural_tags": StructuralTags(tags=[Tag(begin="a")])}, "structural_tags.tags[0]"),
        (
            {"structural_tags": StructuralTags(tags=[Tag(begin="a", regex="b", json_object=True)])},
            "structural_tags.tags[0]",
        ),
        ({"structural_tags": StructuralTags(tags=[], triggers="ab")}, "structural_tags.triggers"),
        ({"regex": "a", "reasoning": Reasoning(max_tokens=-1)}, "reasoning"),
    ],
)
def test_parts_that_cannot_be_written_down_are_refused_by_field(options, field):
    with pytest.raises(InvalidArgumentError) as caught:
        Request("p", **options)
    assert caught.value.field == f"constraint.{field}"


def test_reasoning_needs_no_constraint_but_options_do():
    sent = Request("p", reasoning=Reasoning(end="b")).message.constraint
    assert sent == common_pb2.Constraint(reasoning=common_pb2.Reasoning(end="b"))
    with pytest.raises(InvalidArgumentError, match="best_effort need a constraint"):
        Request("p", reasoning=Reasoning(), best_effort=True)
