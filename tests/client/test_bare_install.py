"""The built wheel in an environment of its own, with the bare dependencies and the source out of reach."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


def run(*command: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in command], check=False, cwd=cwd, capture_output=True, text=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    target = tmp_path_factory.mktemp("wheel")
    done = run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", target, ROOT, cwd=target)
    assert done.returncode == 0, done.stderr
    (built,) = target.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def bare(wheel, tmp_path_factory) -> Path:
    """The bin folder of the environment."""
    home = tmp_path_factory.mktemp("bare")
    assert run(sys.executable, "-m", "venv", home / "venv", cwd=home).returncode == 0
    pip = [home / "venv/bin/python", "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt"]
    done = run(*pip, wheel, cwd=home)
    assert done.returncode == 0, done.stderr
    return home / "venv/bin"


def test_the_wheel_holds_the_interface_and_its_types(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"service/py.typed", "service/v1/generation.proto", "service/v1/generation_pb2.pyi"} <= names
    assert not [name for name in names if name.startswith("tests/")]


def test_the_client_imports_without_torch(bare, tmp_path):
    installed = run(bare / "python", "-m", "pip", "list", "--format=freeze", cwd=tmp_path).stdout.lower()
    assert "espalier-llm" in installed
    assert not [name for name in ("torch", "numpy", "transformers", "rich") if f"\n{name}==" in installed]
    code = "import service.client; print(service.client.__file__)"
    done = run(bare / "python", "-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert str(bare.parent) in done.stdout


def test_the_command_runs(bare, tmp_path):
    assert run(bare / "espalier", "--version", cwd=tmp_path).stdout == f"espalier {metadata.version('espalier-llm')}\n"
    for command in (["generate", "p"], ["models"]):
        done = run(bare / "espalier", *command, "--address", "127.0.0.1:1", cwd=tmp_path)
        assert done.returncode == 1
        assert "no server is ready there" in done.stderr


@pytest.mark.parametrize("command", ["serve", "demo"])
def test_commands_that_need_the_server_say_what_to_install(bare, tmp_path, command):
    done = run(bare / "espalier", command, cwd=tmp_path)
    assert done.returncode == 1
    assert "pip install 'espalier-llm[server]'" in done.stderr
    assert "Traceback" not in done.stderr
