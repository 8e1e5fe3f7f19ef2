"""From the wire to compiled grammars, and which of them the engine keeps."""

from __future__ import annotations

import asyncio
import types

import grpc
import pytest

from decoding.errors import InvalidRequestError
from grammars.compiling.pool import PoolOptions
from grammars.constraint import ConstraintKind, Formats, Notation, PropertyOrder, RegexDialect, Whitespace
from service.constraints import ConstraintCatalog, constraint_spec
from service.v1 import common_pb2, constraint_pb2
from service.v1 import generation_pb2 as pb
from service.v1.common_pb2 import Constraint


def test_every_kind_becomes_its_spec():
    cases = {
        ConstraintKind.JSON_SCHEMA: Constraint(json_schema="true", best_effort=True),
        ConstraintKind.JSON_OBJECT: Constraint(json_object=common_pb2.JsonObject()),
        ConstraintKind.REGEX: Constraint(regex="a"),
        ConstraintKind.CHOICES: Constraint(choices=common_pb2.Choices(values=["a", "b"])),
        ConstraintKind.GRAMMAR: Constraint(grammar=common_pb2.Grammar(text="start: A", start="a")),
        ConstraintKind.STRUCTURAL_TAGS: Constraint(
            structural_tags=common_pb2.StructuralTags(tags=[common_pb2.StructuralTag(begin="<", end=">", regex="a")])
        ),
        ConstraintKind.TOOL_CALLS: Constraint(tool_calls=common_pb2.ToolCalls(tools=[common_pb2.Tool(name="f")])),
    }
    assert set(cases) == set(ConstraintKind)
    for kind, message in cases.items():
        spec = constraint_spec(message)
        assert spec.kind is kind
        assert spec.best_effort == message.best_effort
        text = message.json_schema or message.regex or message.grammar.text
        assert (spec.text, spec.values, spec.start) == (text, tuple(message.choices.values), message.grammar.start)


def test_every_notation_has_its_meaning():
    for number in common_pb2.GrammarNotation.values():
        name = common_pb2.GrammarNotation.Name(number).removeprefix("GRAMMAR_NOTATION_")
        expected = Notation.GBNF if name == "UNSPECIFIED" else Notation[name]
        message = Constraint(grammar=common_pb2.Grammar(text="a", notation=number))
        assert constraint_spec(message).notation is expected


@pytest.mark.parametrize(
    ("grammar", "field"),
    [
        ({"text": "a", "notation": 9}, "constraint.grammar.notation"),
        ({"text": "@sql", "notation": common_pb2.GRAMMAR_NOTATION_LARK}, "constraint.grammar.notation"),
        ({}, "constraint.grammar"),
    ],
)
def test_a_grammar_that_cannot_be_meant_is_refused_by_field(grammar, field):
    with pytest.raises(InvalidRequestError) as caught:
        constraint_spec(Constraint(grammar=common_pb2.Grammar(**grammar)))
    assert caught.value.field == field


def test_white_space_means_nothing_beside_a_grammar():
    message = Constraint(grammar=common_pb2.Grammar(text="a"), whitespace=common_pb2.WHITESPACE_POLICY_COMPACT)
    with pytest.raises(InvalidRequestError, match="means nothing beside grammar"):
        constraint_spec(message)


def test_every_white_space_policy_has_its_meaning():
    for number in common_pb2.WhitespacePolicy.values():
        name = common_pb2.WhitespacePolicy.Name(number).removeprefix("WHITESPACE_POLICY_")
        expected = Whitespace.COMPACT if name == "UNSPECIFIED" else Whitespace[name]
        assert constraint_spec(Constraint(json_schema="true", whitespace=number)).whitespace is expected


def test_every_option_has_its_meaning():
    options = {
        "property_order": (common_pb2.PropertyOrder, PropertyOrder.SCHEMA, Constraint(json_schema="true")),
        "formats": (common_pb2.FormatPolicy, Formats.ASSERT, Constraint(json_schema="true")),
        "regex_dialect": (common_pb2.RegexDialect, RegexDialect.PYTHON, Constraint(regex="a")),
    }
    for field, (wire, default, message) in options.items():
        for number in wire.values():
            setattr(message, field, number)
            name = wire.Name(number).rpartition("_")[2]
            spec = constraint_spec(message)
            expected = default if name == "UNSPECIFIED" else type(default)[name]
            assert getattr(spec, "dialect" if field == "regex_dialect" else field) is expected
    assert constraint_spec(Constraint(json_schema="true", integral_floats=True)).integral_floats
    assert not constraint_spec(Constraint(json_schema="true")).integral_floats


@pytest.mark.parametrize(
    "option",
    [
        {"property_order": common_pb2.PROPERTY_ORDER_SCHEMA},
        {"formats": common_pb2.FORMAT_POLICY_ASSERT},
        {"regex_dialect": common_pb2.REGEX_DIALECT_PYTHON},
        {"integral_floats": True},
        {"best_effort": True},
    ],
    ids=lambda option: next(iter(option)),
)
def test_an_option_is_refused_beside_kinds_that_it_means_nothing_to(option):
    (name,) = option
    kinds = {
        "json_schema": "true",
        "json_object": common_pb2.JsonObject(),
        "regex": "a",
        "choices": common_pb2.Choices(values=["a"]),
        "grammar": common_pb2.Grammar(text="a"),
    }
    for kind, value in kinds.items():
        message = Constraint(**{kind: value}, **option)
        if kind == ("regex" if name == "regex_dialect" else "json_schema"):
            constraint_spec(message)
            continue
        with pytest.raises(InvalidRequestError, match=f"means nothing beside {kind}") as caught:
            constraint_spec(message)
        assert caught.value.field == f"constraint.{name}"


@pytest.mark.parametrize("name", ["property_order", "formats", "regex_dialect"])
def test_an_unknown_value_of_an_option_is_refused(name):
    with pytest.raises(InvalidRequestError, match=r"unknown value 9; use [A-Z_]+_UNSPECIFIED, ") as caught:
        constraint_spec(Constraint(json_schema="true", **{name: 9}))
    assert caught.value.field == f"constraint.{name}"


async def test_options_reach_the_texts(run_server):
    async with run_server() as server:

        async def text(**fields):
            message = pb.GenerateRequest(text="x", constraint=Constraint(**fields))
            return (await server.generation.Generate(message)).samples[0].text

        async def unenforced(**fields):
            message = constraint_pb2.CompileRequest(constraint=Constraint(**fields))
            return [item.keyword for item in (await server.constraint.Compile(message)).unenforced]

        digits = {"regex": "\\d{3}"}
        ecma = await text(**digits, regex_dialect=common_pb2.REGEX_DIALECT_ECMA)
        assert ecma.isascii()
        assert ecma.isdecimal()
        dated = {"json_schema": '{"type": "string", "format": "date"}'}
        assert await unenforced(**dated) == []
        assert await unenforced(**dated, formats=common_pb2.FORMAT_POLICY_ANNOTATE) == ["format"]


async def test_a_constraint_is_compiled_once_and_reports_itself(run_server):
    async with run_server() as server:
        message = constraint_pb2.CompileRequest(constraint=Constraint(regex="[ab]{3}"))
        first = await server.constraint.Compile(message)
        again = await server.constraint.Compile(message)
        assert (first.cached, again.cached) == (False, True)
        assert first.handle == again.handle
        assert first.compile_ms > 0 == again.compile_ms
        assert first.states > 0
        assert first.size_bytes > 0


async def test_a_constraint_is_explained(run_server):
    schema = '{"type": "array", "minItems": 2, "items": {"enum": ["ab", 7]}, "x-note": 1}'
    async with run_server() as server:
        found = await server.constraint.Explain(
            constraint_pb2.ExplainRequest(constraint=Constraint(json_schema=schema))
        )
        assert found.normalised == schema.replace(" ", "")
        assert [(item.pointer, item.keyword) for item in found.enforced] == [
            ("/type", "type"),
            ("/items", "items"),
            ("/minItems", "minItems"),
            ("/items/enum", "enum"),
        ]
        assert [item.pointer for item in found.unenforced] == ["/x-note"]
        assert found.shortest == "[7,7]"
        assert found.shortest_tokens <= len("[7,7]")
        assert found.states > 0
        assert found.size_bytes > 0
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await server.constraint.Explain(constraint_pb2.ExplainRequest(constraint=Constraint(regex="(")))
        assert refusal.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await server.constraint.Explain(constraint_pb2.ExplainRequest(constraint=Constraint(compiled="x")))
        assert refusal.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_the_engine_keeps_the_last_used_constraints_and_gets_dropped_ones_again(run_server):
    """With two handed out and room for one, every request still finds its own grammar."""
    options = PoolOptions(workers=1, cache_entries=1)
    async with run_server(compiling=options) as server:
        patterns = [f"{letter}{{4}}" for letter in "abc"] * 3

        async def generate(pattern):
            message = pb.GenerateRequest(text="x", constraint=Constraint(regex=pattern))
            return (await server.generation.Generate(message)).samples[0].text

        assert [await generate(pattern) for pattern in patterns] == [pattern[0] * 4 for pattern in patterns]
        texts = await asyncio.gather(*map(generate, patterns[:6]))
        assert texts == [pattern[0] * 4 for pattern in patterns[:6]]
        assert len(server.model.catalog._defined) == 1


async def test_a_running_request_keeps_a_grammar_that_is_dropped(run_server):
    options = PoolOptions(workers=1, cache_entries=1)
    async with run_server(compiling=options, engine={"step_s": 0.01}) as server:
        message = pb.GenerateRequest(text="x", constraint=Constraint(regex="a{60}"))
        running = aiter(server.generation.GenerateStream(pb.GenerateStreamRequest(request=message)))
        events = [await anext(running)]
        other = pb.GenerateRequest(text="x", constraint=Constraint(regex="b{4}"))
        assert (await server.generation.Generate(other)).samples[0].text == "bbbb"
        events += [event async for event in running]
        assert "".join(event.delta.text for event in events) == "a" * 60


@pytest.mark.parametrize(("room", "kept"), [(3500, ["b", "c", "d"]), (2500, ["c", "d"]), (10, ["d"])])
def test_bytes_bound_the_engines_grammars_and_the_last_used_is_kept(room, kept):
    told = []
    engine = types.SimpleNamespace(
        define_grammar=lambda key, packed: told.append(key), drop_grammar=lambda key: told.remove(key)
    )
    catalog = ConstraintCatalog(pool=None, engine=engine, options=PoolOptions(cache_bytes=room))
    for key in "abcd":
        assert catalog.define(types.SimpleNamespace(key=key, packed=b"", size_bytes=1000)) == key
    assert told == kept
