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
    Request,
    Started,
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
