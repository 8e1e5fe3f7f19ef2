from __future__ import annotations

from pathlib import Path

from mypy import api

ROOT = Path(__file__).parents[2]
SNIPPET = """
from typing import Any, assert_type

from pydantic import BaseModel, TypeAdapter

from service.client import AsyncClient, Client, EspalierClientError, Generation, Request


class Person(BaseModel):
    name: str


class Pet(BaseModel):
    kind: str


def sync(client: Client) -> None:
    assert_type(client.generate("p", schema=Person), Generation[Person])
    assert_type(client.generate("p", schema=Person, temperature=0.5, n=2).parsed, Person)
    assert_type(client.generate("p", schema=list[Person]).parsed, list[Person])
    assert_type(client.generate("p", schema=TypeAdapter(Person)).parsed, Person)
    assert_type(client.generate("p", schema={"type": "object"}).parsed, Any)
    assert_type(client.generate("p", regex="a+"), Generation[Any])
    assert_type(client.generate("p", constraint=client.compile(schema=Pet)).parsed, Pet)
    assert_type(client.stream("p", schema=Person).result(), Generation[Person])
    item = client.generate_batch([Request("a", schema=Person)])[0]
    assert_type(item, Generation[Person] | EspalierClientError)
    request = Request("p", choices=["a"])
    client.generate("p", temprature=1.0)
    client.generate("p", whitespace="tabs")


async def asynchronous(client: AsyncClient) -> None:
    assert_type((await client.generate("p", schema=Person)).parsed, Person)
    assert_type(await client.stream("p", schema=Person).result(), Generation[Person])
    assert_type((await client.generate("p", constraint=await client.compile(schema=Pet))).parsed, Pet)
"""


def test_mypy_infers_the_type_of_parsed_and_catches_wrong_options(tmp_path, monkeypatch):
    snippet = tmp_path / "snippet.py"
    snippet.write_text(SNIPPET)
    monkeypatch.chdir(ROOT)
    settings = ["--strict", "--config-file", "pyproject.toml", "--cache-dir", str(tmp_path / "cache")]
    report, problems, _ = api.run([*settings, str(snippet)])
    assert problems == ""
    errors = [line for line in report.splitlines() if "error" in line and line.startswith(str(snippet))]
    assert len(errors) == 2, report
    assert "temprature" in errors[0]
    assert "whitespace" in errors[1]
