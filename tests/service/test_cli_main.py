"""The dispatcher: what it imports, what it hands on, and what it says where the server extra is missing."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata

import pytest

from service.cli import main as cli


def test_importing_the_dispatcher_imports_no_server_package():
    code = "import sys, service.cli.main; print([m for m in ('torch', 'numpy', 'grpc', 'jinja2') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_version_is_the_distributions(capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main(["--version"])
    assert exit_.value.code == 0
    assert capsys.readouterr().out.strip() == f"espalier {metadata.version('espalier-llm')}"


@pytest.mark.parametrize("argv", [[], ["unknown"]])
def test_a_line_without_a_known_command_is_refused_with_the_list(argv, capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main(argv)
    assert exit_.value.code == 2
    assert "usage: espalier" in capsys.readouterr().err


def test_the_rest_of_the_line_goes_to_the_command(monkeypatch):
    seen = []

    class Command:
        @staticmethod
        def main(argv):
            seen.append(argv)
            return 7

    monkeypatch.setattr(cli.importlib, "import_module", lambda name: Command if name == "service.cli.models" else None)
    assert cli.main(["models", "--address", "x:1", "--version"]) == 7
    assert seen == [["--address", "x:1", "--version"]]


def test_serve_without_the_server_extra_names_the_mend(monkeypatch, capsys):
    def missing(_name):
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr(cli.importlib, "import_module", missing)
    assert cli.main(["serve"]) == 1
    assert "pip install 'espalier-llm[server]'" in capsys.readouterr().err


def test_a_missing_module_of_our_own_is_a_defect_and_not_blamed_on_the_extra(monkeypatch):
    def missing(_name):
        raise ModuleNotFoundError("No module named 'service.cli.serve'", name="service.cli.serve")

    monkeypatch.setattr(cli.importlib, "import_module", missing)
    with pytest.raises(ModuleNotFoundError):
        cli.main(["serve"])
