"""What the benchmark needs and does not find, it names."""

from __future__ import annotations

import importlib.util
import json

import pytest

from tests.bench.grammar import engines, tasks, vocabularies


@pytest.mark.parametrize("read", [tasks.maskbench, tasks.micro, lambda: tasks.suite("7")])
def test_missing_data_is_told_with_the_variable_that_mends_it(read, tmp_path, monkeypatch):
    monkeypatch.setenv("ESPALIER_TEST_DATA", str(tmp_path))
    with pytest.raises(SystemExit, match=f"is not in {tmp_path}.*ESPALIER_TEST_DATA"):
        read()


def test_missing_packages_are_told_with_the_command_that_installs_them(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="pip install --no-deps mistral-common"):
        vocabularies.locate("tekken")
    with pytest.raises(SystemExit, match=r"pip install -c constraints\.txt xgrammar"):
        engines.check_installed("xgrammar")


def test_the_suite_is_read_with_its_dialect_and_formats_apart(tmp_path, monkeypatch):
    groups = [
        {"file": "a.json", "group": "g", "schema": {"type": "string"}, "tests": [{"valid": True, "data": "x"}]},
        {"file": "optional/b.json", "group": "h", "schema": True, "tests": []},
        {"file": "a.json", "group": "i", "schema": {"$schema": "mine"}, "tests": []},
    ]
    (tmp_path / "json-schema-test-suite-draft7.json").write_text(json.dumps(groups))
    monkeypatch.setenv("ESPALIER_TEST_DATA", str(tmp_path))
    read = tasks.suite("7")
    assert [task.group for task in read] == ["suite", "optional", "suite"]
    assert json.loads(read[0].schema) == {"$schema": tasks.DRAFTS["7"], "type": "string"}
    assert read[1].schema == "true"
    assert json.loads(read[2].schema) == {"$schema": "mine"}
    assert [task.name for task in tasks.suite("7", 2)] == ["a.json#0: g", "a.json#2: i"]
