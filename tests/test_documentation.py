"""Holds the documents to the code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import json_format
from google.protobuf.message_factory import GetMessageClass

from service import client
from service.cli.main import COMMANDS
from service.v1 import generation_pb2

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FOLDERS = sorted(path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith((".", "_")))
DOCUMENTS = sorted(
    path for path in ROOT.rglob("*.md") if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
)


@pytest.mark.parametrize("folder", [path.name for path in FOLDERS if path.name != "dist"])
def test_every_top_folder_says_what_is_in_it(folder):
    assert (ROOT / folder / "README.md").is_file()


@pytest.mark.parametrize("document", [str(path.relative_to(ROOT)) for path in DOCUMENTS])
def test_links_between_documents_lead_somewhere(document):
    file = ROOT / document
    for target in re.findall(r"\]\(([^)#\s]+)", file.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (file.parent / target).exists(), target


def test_make_targets_named_in_the_readme_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z-]+)", " ".join(re.findall(r"`[^`\n]+`|^make .*$", README, re.MULTILINE))))
    assert {"demo", "test"} <= named
    assert named <= targets


def test_files_named_in_the_readme_exist():
    named = re.findall(r"`((?:service|engine|drafters|grammars|decoding|tests)/[\w/.*]+)`", README)
    assert named
    for pattern in named:
        assert list(ROOT.glob(pattern)), pattern


def test_flag_tables_are_those_of_the_parsers():
    done = subprocess.run(
        [sys.executable, "-m", "tests.flag_tables", "--check"], check=False, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_every_command_has_its_table():
    assert re.findall(r"<!-- flags of espalier (\w+) -->", README) == list(COMMANDS)
    assert README.count("<!-- end of flags -->") == len(COMMANDS)


def test_the_client_s_readme_names_every_option_and_export():
    text = (ROOT / "service/client/README.md").read_text(encoding="utf-8")
    options = {*client.Options.__annotations__, "schema", "constraint", "timeout", "retries", "credentials"}
    assert {name for name in options if not re.search(rf"`[^`\n]*\b{name}\b", text)} == set()
    errors = {name for name in client.__all__ if name.endswith("Error")}
    assert {name for name in errors if f"`{name}`" not in text} == set()


def test_the_grpcurl_example_is_a_request_of_a_method_that_exists():
    (body, service, method) = re.search(
        r"grpcurl .*-d '(.*?)' \S+ espalier\.v1\.(\w+)/(\w+)", README, re.DOTALL
    ).groups()
    called = generation_pb2.DESCRIPTOR.services_by_name[service].methods_by_name[method]
    request = json_format.Parse(body, GetMessageClass(called.input_type)())
    assert json.loads(request.constraint.json_schema)["type"] == "object"


def test_readme_examples_compile():
    for document in DOCUMENTS:
        for block in re.findall(r"```python\n(.*?)```", document.read_text(encoding="utf-8"), re.DOTALL):
            compile(block, str(document), "exec")
