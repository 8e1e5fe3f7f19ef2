"""Schemas and instances from the files under ``../shared``, as tasks for the engines.

Invariant: an instance is what the file says; the only addition is `Instance.ordered`, the same value with its keys in
the order of the schema, since engines generate keys in an order and a value has none.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.grammar.key_order import KeyOrder

DRAFTS = {"2020-12": "https://json-schema.org/draft/2020-12/schema", "7": "http://json-schema.org/draft-07/schema#"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A JSON text, and what an engine should say of it.

    `ordered` is None for invalid instances and where the text is in schema order as it stands.
    """

    text: str
    is_valid: bool
    ordered: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One schema with its instances; `group` is the collection that it comes from."""

    name: str
    group: str
    schema: str
    instances: tuple[Instance, ...]


def maskbench(every: int = 1) -> list[Task]:
    """Every n-th schema of the sample of MaskBench, with all its instances."""
    with gzip.open(_file("maskbench-sample.jsonl.gz"), "rt", encoding="utf-8", newline="\n") as lines:
        described = [json.loads(line) for number, line in enumerate(lines) if number % every == 0]
    return [task(entry["name"], entry["name"].split("---")[0], entry["schema"], entry["tests"]) for entry in described]


def micro() -> list[Task]:
    """The keyword checks: texts instead of values, since some say the same value in other ways."""
    lines = _file("micro.jsonl", "../bench/grammar/micro.jsonl").read_text(encoding="utf-8").splitlines()
    return [
        Task(
            name=entry["id"],
            group="micro",
            schema=entry["text"],
            instances=tuple(Instance(text=test["text"], is_valid=test["valid"]) for test in entry["tests"]),
        )
        for entry in map(json.loads, lines)
    ]


def suite(draft: str, every: int = 1) -> list[Task]:
    """Every n-th group of JSON-Schema-Test-Suite; schemas that name no dialect are given that of the file's draft."""
    groups = json.loads(_file(f"json-schema-test-suite-draft{draft}.json").read_text(encoding="utf-8"))
    return [
        task(
            f"{entry['file']}#{number}: {entry['group']}",
            "optional" if entry["file"].startswith("optional/") else "suite",
            _in_dialect(entry["schema"], DRAFTS[draft]),
            entry["tests"],
        )
        for number, entry in enumerate(groups)
        if number % every == 0
    ]


def task(name: str, group: str, schema: Any, tests: list[dict[str, Any]]) -> Task:
    """A task from values."""
    return Task(name=name, group=group, schema=_text(schema), instances=tuple(_instances(schema, tests)))


def _instances(schema: Any, tests: list[dict[str, Any]]) -> Iterator[Instance]:
    order = KeyOrder(schema)
    for test in tests:
        text = _text(test["data"])
        ordered = _text(order.arrange(test["data"])) if test["valid"] else text
        yield Instance(text=text, is_valid=test["valid"], ordered=ordered if ordered != text else None)


def _in_dialect(schema: Any, uri: str) -> Any:
    return {"$schema": uri, **schema} if isinstance(schema, dict) else schema


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _file(*names: str) -> Path:
    root = Path(__file__).parents[3]
    directory = Path(os.environ.get("ESPALIER_TEST_DATA", root.parent / "shared" / "data"))
    for name in names:
        if (path := directory / name).is_file():
            return path
    raise SystemExit(
        f"{names[0]} is not in {directory}; the grammar benchmark needs it. Set ESPALIER_TEST_DATA to the folder that"
        " holds it (its README says where it comes from)."
    )
