"""Holds service/README.md and the comments of the protobuf files to the code."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2
from google.rpc import code_pb2

from engine.blocks import BlockCounts
from engine.stats import EngineStats, Totals
from service import errors, server
from service.cli import serve
from service.metrics import ServerMetrics
from service.readiness import SERVICES

ROOT = Path(__file__).parents[2]
SERVICE = ROOT / "service"
README = (SERVICE / "README.md").read_text(encoding="utf-8")
PROTOS = sorted((SERVICE / "v1").glob("*.proto"))


@pytest.fixture(scope="module")
def described(tmp_path_factory) -> descriptor_pb2.FileDescriptorSet:
    """The protobuf files with their comments."""
    target = tmp_path_factory.mktemp("protos") / "set"
    files = [str(path.relative_to(ROOT)) for path in PROTOS]
    command = [sys.executable, "-m", "grpc_tools.protoc", "--proto_path=.", "--include_source_info"]
    subprocess.run([*command, f"--descriptor_set_out={target}", *files], check=True, cwd=ROOT)
    return descriptor_pb2.FileDescriptorSet.FromString(target.read_bytes())


def declarations(message, path, name):
    """(path, name) of a message and everything in it, as in SourceCodeInfo: 2 fields, 8 oneofs, 3 messages, 4 enums."""
    yield path, name
    for index, field in enumerate(message.field):
        yield (*path, 2, index), f"{name}.{field.name}"
    for index, oneof in enumerate(message.oneof_decl):
        if not oneof.name.startswith("_"):  # those stand for `optional`
            yield (*path, 8, index), f"{name}.{oneof.name}"
    for index, nested in enumerate(message.nested_type):
        if not nested.options.map_entry:
            yield from declarations(nested, (*path, 3, index), f"{name}.{nested.name}")


def all_declarations(file):
    """4 messages, 5 enums, 6 services of a file."""
    for index, message in enumerate(file.message_type):
        yield from declarations(message, (4, index), message.name)
    for index, enum in enumerate(file.enum_type):
        yield (5, index), enum.name
        for number, value in enumerate(enum.value):
            yield (5, index, 2, number), value.name
    for index, service in enumerate(file.service):
        yield (6, index), service.name
        for number, method in enumerate(service.method):
            yield (6, index, 2, number), f"{service.name}.{method.name}"


def test_every_declaration_of_the_protobuf_files_has_a_comment(described):
    assert len(described.file) == len(PROTOS) == 4
    bare = []
    for file in described.file:
        comments = {
            tuple(location.path): location.leading_comments + location.trailing_comments
            for location in file.source_code_info.location
        }
        names = list(all_declarations(file))
        assert len(names) > 5
        bare += [name for path, name in names if not comments.get(path, "").strip()]
    assert bare == []


def test_the_generated_modules_are_those_of_the_protobuf_files(described):
    for file in described.file:
        module = importlib.import_module(file.name.removesuffix(".proto").replace("/", ".") + "_pb2")
        generated = descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
        for message in file.message_type:
            for field in (*message.field, *(field for nested in message.nested_type for field in nested.field)):
                field.ClearField("json_name")  # protoc adds it to descriptor sets only
        file.ClearField("source_code_info")
        assert generated == file


def test_every_metric_is_in_the_table_and_nothing_else():
    blocks = BlockCounts(total=1, free=1, cached=0, used=0)
    metrics = ServerMetrics("m", lambda: EngineStats(running=0, waiting=0, blocks=blocks, totals=Totals()))
    exported = {
        family.name + ("_total" if family.type == "counter" else ""): family.type
        for family in metrics.registry.collect()
    }
    assert dict(re.findall(r"^\| `((?:vllm|espalier):\w+)` \| (\w+) \|", README, re.MULTILINE)) == exported


def test_every_status_reason_is_in_the_table():
    rows = set(re.findall(r"^\| ([A-Z_]+) \| `([A-Z_]+)` \|", README, re.MULTILINE))
    assert rows == {(code_pb2.Code.Name(code), reason) for _, code, reason in errors._STATUSES}


def test_every_service_and_exit_code_is_named():
    for service in filter(None, SERVICES):
        assert f"| `{service}` |" in README
    assert f"| {server.ENGINE_DIED} | the engine died" in README


def test_every_file_is_in_the_table():
    table = README.partition("## Files")[2]
    named = set(re.findall(r"`([\w/]+(?:\.py|/))`", table))
    files = {path.name for path in SERVICE.glob("*.py")} - {"__init__.py"}
    folders = {f"{path.name}/" for path in SERVICE.iterdir() if path.is_dir() and not path.name.startswith("_")}
    assert files | folders <= named
    assert all((SERVICE / name).exists() for name in named)


def test_flags_that_are_named_exist():
    known = {option for action in serve.make_parser()._actions for option in action.option_strings}
    named = set(re.findall(r"`(--[\w-]*\w)", README))
    assert named
    assert {name for name in named if name not in known and not any(flag.startswith(name) for flag in known)} == set()
