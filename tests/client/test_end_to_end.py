"""Both clients and the commands against a real server process with a tiny random model."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import jsonschema
import pytest
from pydantic import BaseModel, ConfigDict, Field

from service.cli import generate, models
from service.cli.child_server import child_server, free_loopback_address
from service.client import (
    Completeness,
    Delta,
    Finished,
    FinishReason,
    IncompleteOutputError,
    InvalidArgumentError,
    Reasoning,
    Request,
    Started,
    StructuralTags,
    Tag,
    TextPart,
    Tool,
    ToolCallFormat,
    ToolCalls,
    UnsupportedError,
)


class Pet(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(max_length=6)
    legs: int = Field(ge=0, le=8)
    tame: bool


@pytest.fixture(scope="module")
def address(tiny_model_dir):
    address = free_loopback_address()
    serve = [sys.executable, "-m", "service.cli.main", "serve", "--address", address, "--log-level", "warning"]
    model = [
        "--model",
        str(tiny_model_dir()),
        "--device",
        "cpu",
        "--threads",
        "1",
        "--kv-cache-tokens",
        "8192",
    ]
    with child_server([*serve, *model], address, startup_timeout=240):
        yield address


@pytest.fixture
def client(connect, address):
    return connect(address)


def test_a_pydantic_model_comes_back_as_its_instance(client):
    for seed in range(5):
        generation = client.generate("A pet: ", schema=Pet, seed=seed)
        assert generation.complete
        jsonschema.validate(json.loads(generation.text), Pet.model_json_schema())
        assert generation.parsed == Pet.model_validate_json(generation.text)
        assert generation.seed == seed
        assert generation.usage.prompt_tokens > 0


@pytest.mark.parametrize("options", [{"schema": Pet}, {"regex": "[ab]{3,9}"}, {}], ids=["schema", "regex", "free"])
def test_a_stream_gives_what_the_whole_call_gives(client, options):
    options = {**options, "seed": 7, "n": 2, "max_tokens": 60, "logprobs": 1, "temperature": 0.8}
    whole = client.generate("Once", **options)
    with client.stream("Once", **options) as stream:
        events = list(stream)
    assert isinstance(events[0], Started)
    assert {type(event) for event in events[1:]} == {Delta, Finished}
    streamed = stream.result()
    for one, other in zip(whole.samples, streamed.samples, strict=True):
        assert (one.text, one.token_ids, one.finish_reason) == (other.text, other.token_ids, other.finish_reason)
        assert len(one.logprobs) == len(one.token_ids) == len(other.logprobs)
    assert whole.usage.completion_tokens == streamed.usage.completion_tokens


def test_equal_seeds_give_equal_texts_alone_and_in_company(client):
    alone = client.generate("Once", seed=3, max_tokens=24).text
    with ThreadPoolExecutor(6) as pool:
        texts = list(pool.map(lambda seed: client.generate("Once", seed=seed, max_tokens=24).text, [3, 1, 3, 2, 3, 4]))
    assert {texts[0], texts[2], texts[4]} == {alone}


def test_regex_and_choices(client):
    pattern = r"(19|20)[0-9]{2}-(0[1-9]|1[0-2])"
    assert re.fullmatch(pattern, client.generate("Date: ", regex=pattern).parsed)
    assert client.generate("Mood: ", choices=["good", "bad", "good enough"]).parsed in {"good", "bad", "good enough"}


def test_a_compiled_constraint(client):
    compiled = client.compile(schema=Pet, whitespace="spaced")
    assert compiled.unenforced == ()
    generation = client.generate("A pet: ", constraint=compiled, seed=1)
    assert isinstance(generation.parsed, Pet)
    assert re.search(r'": .*", "legs": .*, "tame": ', generation.text)
    assert client.compile(schema=Pet, whitespace="spaced").cached


def test_a_document_that_is_cut(client):
    generation = client.generate("A pet: ", schema=Pet, max_tokens=2)
    assert generation.finish_reason is FinishReason.LENGTH
    assert generation.samples[0].completeness is Completeness.VALID_PREFIX
    with pytest.raises(IncompleteOutputError):
        _ = generation.parsed


def test_a_batch_with_a_bad_item(client):
    good, bad, cut = client.generate_batch(
        [
            Request("A pet: ", schema=Pet, seed=1),
            Request("A pet: ", temperature=-1.0),
            Request("Word: ", regex="a{50}", max_tokens=1),
        ]
    )
    assert isinstance(good.parsed, Pet)
    assert isinstance(bad, InvalidArgumentError)
    assert bad.field.endswith("sampling.temperature")
    assert not cut.complete


@pytest.mark.parametrize(
    ("options", "kind", "field"),
    [
        ({"temperature": float("nan")}, InvalidArgumentError, "sampling.temperature"),
        ({"n": 1000}, InvalidArgumentError, "n"),
        ({"model": "other"}, InvalidArgumentError, "model"),
        ({"schema": "{"}, InvalidArgumentError, "constraint.json_schema"),
        ({"schema": {"type": "nothing"}}, InvalidArgumentError, "constraint.json_schema"),
        (
            {"schema": {"type": "string", "minLength": 3, "maxLength": 1}},
            InvalidArgumentError,
            "constraint.json_schema",
        ),
        ({"regex": "("}, InvalidArgumentError, "constraint.regex"),
        ({"choices": []}, InvalidArgumentError, "constraint.choices"),
    ],
)
def test_bad_input_names_its_field(client, options, kind, field):
    for call in (client.generate, lambda *prompt, **rest: client.stream(*prompt, **rest).result()):
        with pytest.raises(kind) as caught:
            call("p", **options)
        assert caught.value.field.removeprefix("request.").startswith(field)


def test_an_unsupported_keyword_names_its_place_and_best_effort_reports_it(client):
    schema = {
        "properties": {"a": {"type": "string", "pattern": r"^(a|b)\1$"}},
        "required": ["a"],
    }
    with pytest.raises(UnsupportedError) as caught:
        client.generate("p", schema=schema)
    assert caught.value.pointer == "/properties/a/pattern"
    generation = client.generate("p", schema=schema, best_effort=True, max_tokens=20)
    assert [(keyword.keyword, keyword.pointer) for keyword in generation.unenforced] == [
        ("pattern", "/properties/a/pattern")
    ]


def test_tokenize_and_back(client):
    tokens = client.tokenize("Straße 🌳")
    assert b"".join(tokens.tokens).decode() == "Straße 🌳"
    assert client.detokenize(tokens.ids) == "Straße 🌳"
    assert (
        client.generate(tokens=tokens.ids, max_tokens=4, seed=1).text
        == client.generate("Straße 🌳", max_tokens=4, seed=1).text
    )


def test_a_stream_that_is_left_frees_its_place(client, address):
    (model,) = client.models()
    for _ in range(20):  # together far more than the cache holds
        with client.stream("Once", ignore_eos=True, max_tokens=900, n=8) as stream:
            next(event for event in stream if isinstance(event, Delta))
    assert client.generate("Once", ignore_eos=True, max_tokens=8).usage.completion_tokens == 8
    assert model.limits.kv_cache_tokens < 20 * 900 * 8


def test_commands(address, capsys):
    assert models.main(["--address", address]) == 0
    assert "context_length" in capsys.readouterr().out
    assert generate.main(["p", "--address", address, "--regex", "[ab]{4}", "--seed", "1"]) == 0
    assert re.fullmatch(r"[ab]{4}\n", capsys.readouterr().out)
    assert generate.main(["p", "--address", address, "--regex", "[ab]{40}", "--max-tokens", "3"]) == 3
    assert generate.main(["p", "--address", address, "--temperature", "-1"]) == 1
    assert "sampling.temperature" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.timeout(900)
def test_the_demo_ends_well():
    done = subprocess.run(
        [sys.executable, "-m", "service.cli.main", "demo"], check=False, capture_output=True, text=True, timeout=840
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("✓") == 5


def add_and_pet(**options):
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer", "maximum": 99, "minimum": 0}},
        "required": ["a"],
    }
    closed = {**schema, "additionalProperties": False}
    return ToolCalls(tools=[Tool(name="add", parameters=closed), Tool(name="pet", parameters=Pet)], **options)


def test_tool_calls_come_back_typed(client):
    generation = client.generate(
        "p", tool_calls=add_and_pet(choice="required", max_calls=2), max_tokens=400, seed=3, temperature=1.5
    )
    assert generation.complete
    assert generation.parsed == generation.tool_calls
    assert 1 <= len(generation.tool_calls) <= 2
    texts = []
    for call in generation.tool_calls:
        texts.append(f'<tool_call>\n{{"name": "{call.name}", "arguments": {call.arguments}}}\n</tool_call>')
        assert call.parsed == (
            Pet.model_validate_json(call.arguments) if call.name == "pet" else json.loads(call.arguments)
        )
    assert generation.text == "\n".join(texts)


def test_a_tool_by_name_and_a_stream(client):
    with client.stream(chat=[{"role": "user", "content": "x"}], tool_calls=add_and_pet(name="pet"), seed=1) as stream:
        finished = [event for event in stream if isinstance(event, Finished)]
    (call,) = stream.result().tool_calls
    assert isinstance(call.parsed, Pet)
    assert finished[0].taken_apart.tool_calls == (call,)


def test_free_text_alone_where_no_call_may_come(client):
    generation = client.generate("p", tool_calls=add_and_pet(choice="none"), max_tokens=30, seed=2)
    assert generation.tool_calls == ()
    assert "<tool_call>" not in generation.text


def test_reasoning_is_cut_to_its_tokens_and_told_from_the_answer(client):
    """`<|im_start|>` is a special token of the tiny model: it is written out in the text and ends the reasoning."""
    reasoning = Reasoning(end="<|im_start|>", max_tokens=9)
    generation = client.generate("p", choices=["yes", "no"], reasoning=reasoning, seed=4, temperature=1)
    assert generation.text == f"{generation.reasoning}<|im_start|>{generation.content}"
    assert generation.parsed == generation.content
    assert generation.content in ("yes", "no")
    assert generation.samples[0].token_ids.index(1) <= 9
    stopped = client.generate("p", choices=["yes"], reasoning=reasoning, stop=["_start|>"], seed=4, temperature=1)
    assert stopped.finish_reason is FinishReason.STOP_STRING
    assert stopped.text == f"{generation.reasoning}<|im"
    typed = client.generate("p", schema=Pet, reasoning=Reasoning(max_tokens=5), seed=4, max_tokens=200)
    assert isinstance(typed.parsed, Pet)


def test_free_text_may_come_after_reasoning(client):
    reasoning = Reasoning(end="</think>", max_tokens=4)
    generation = client.generate("p", reasoning=reasoning, seed=4, temperature=1, max_tokens=40, ignore_eos=True)
    assert generation.text == f"{generation.reasoning}</think>{generation.content}"
    assert generation.content
    assert generation.parsed == generation.content


def test_structural_tags_come_back_in_parts(client):
    tags = StructuralTags(
        tags=[Tag(begin="<n>", end="</n>", regex="[0-9]{2}"), Tag(begin="<p>", end="</p>", schema=Pet)],
        min_parts=2,
        max_parts=3,
        max_text_tokens=4,
        no_text_after=True,
    )
    generation = client.generate("p", structural_tags=tags, seed=5, max_tokens=400)
    assert generation.complete
    parts = generation.parsed
    assert "".join(f"{p.begin or ''}{p.text}{(p.begin or '').replace('<', '</')}" for p in parts) == generation.text
    inside = [part for part in parts if part.begin is not None]
    assert len(inside) in (2, 3)
    for part in inside:
        assert re.fullmatch("[0-9]{2}", part.text) if part.begin == "<n>" else Pet.model_validate_json(part.text)
    assert all(isinstance(part, TextPart) and not part.cut for part in parts)


def test_a_compiled_constraint_keeps_its_tools_and_their_types(client):
    form = ToolCallFormat(begin="[{name}](", end=")")
    compiled = client.compile(tool_calls=add_and_pet(choice="required", max_calls=1, format=form))
    generation = client.generate("p", constraint=compiled, seed=6, max_tokens=200)
    (call,) = generation.parsed
    assert generation.text == f"[{call.name}]({call.arguments})"


def test_one_bad_tool_is_named_and_best_effort_reports_it(client):
    bad = Tool(name="bad", parameters={"type": "object", "properties": {"a": {"pattern": "(a)\\1"}}})
    calls = ToolCalls(tools=[Tool(name="ok"), bad], name="ok")
    with pytest.raises(UnsupportedError) as caught:
        client.generate("p", tool_calls=ToolCalls(tools=[Tool(name="ok"), bad]))
    assert (caught.value.field, caught.value.pointer) == (
        "constraint.tool_calls.tools[1].parameters",
        "/properties/a/pattern",
    )
    generation = client.generate(
        "p", tool_calls=ToolCalls(tools=[Tool(name="ok"), bad], max_calls=1), best_effort=True, seed=1, max_tokens=5
    )
    assert [(item.field, item.pointer) for item in generation.unenforced] == [
        ("constraint.tool_calls.tools[1].parameters", "/properties/a/pattern")
    ]
    assert client.generate("p", tool_calls=calls, seed=1).tool_calls[0].parsed == {}


def test_the_command_calls_tools(address, capsys):
    tools = json.dumps([{"type": "function", "function": {"name": "ok", "description": "Says ok"}}])
    flags = ["--address", address, "--tools", tools, "--tool-choice", "ok", "--reasoning", "--reasoning-tokens", "3"]
    assert generate.main(["p", *flags, "--seed", "1", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    apart = answer["samples"][0]["taken_apart"]
    assert apart["tool_calls"] == [{"name": "ok", "arguments": "{}"}]
    assert answer["text"] == f"{apart['reasoning']}</think>{apart['content']}"
