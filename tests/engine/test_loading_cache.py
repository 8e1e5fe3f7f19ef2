from __future__ import annotations

import errno
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from safetensors import SafetensorError

from decoding.errors import ModelLoadError
from engine.loading import cache
from engine.loading.cache import cache_root, obtain, sha256, verify
from engine.loading.progress import NoProgress

SILENT = NoProgress()


def write_model(directory: Path) -> None:
    (directory / "config.json").write_text("{}")
    (directory / "weights").write_bytes(bytes(1000))


def test_builds_once_and_publishes_all_or_nothing(tmp_path):
    builds = []

    def build(directory: Path) -> None:
        assert not (tmp_path / "m").exists()
        builds.append(directory)
        write_model(directory)

    directory = obtain(tmp_path, "m", build, SILENT)
    assert obtain(tmp_path, "m", build, SILENT) == directory == tmp_path / "m"
    assert len(builds) == 1
    assert sorted(path.name for path in directory.iterdir()) == ["config.json", "manifest.json", "weights"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".m.lock", "m"]


def test_a_failed_build_leaves_nothing(tmp_path):
    def build(directory: Path) -> None:
        write_model(directory)
        raise ModelLoadError("no such tensor")

    with pytest.raises(ModelLoadError, match="no such tensor"):
        obtain(tmp_path, "m", build, SILENT)
    assert [path.name for path in tmp_path.iterdir()] == [".m.lock"]


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        SafetensorError('Error while serializing: I/O error: Os { code: 28, message: "No space left on device" }'),
    ],
)
def test_a_full_disk_leaves_nothing_and_says_so(tmp_path, error):
    def build(directory: Path) -> None:
        write_model(directory)
        raise error

    with pytest.raises(ModelLoadError, match="is full; free some space, or set ESPALIER_CACHE_DIR"):
        obtain(tmp_path, "m", build, SILENT)
    assert [path.name for path in tmp_path.iterdir()] == [".m.lock"]


def test_what_a_killed_process_left_is_removed(tmp_path):
    leftover = tmp_path / ".m.abc.partial"
    leftover.mkdir()
    write_model(leftover)
    other = tmp_path / ".other.abc.partial"
    other.mkdir()
    obtain(tmp_path, "m", write_model, SILENT)
    assert not leftover.exists()
    assert other.exists()


def test_an_unwritable_cache_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelLoadError, match=r"cannot be written .*; set ESPALIER_CACHE_DIR"):
        obtain(tmp_path / "file" / "below", "m", write_model, SILENT)


def test_errors_of_our_own_are_not_translated(tmp_path):
    def build(directory: Path) -> None:
        raise AssertionError("ours")

    with pytest.raises(AssertionError, match="ours"):
        obtain(tmp_path, "m", build, SILENT)


def test_two_processes_build_once(tmp_path):
    script = textwrap.dedent("""
        import sys, time
        from pathlib import Path
        from engine.loading.cache import obtain
        from engine.loading.progress import NoProgress

        def build(directory):
            with open(sys.argv[2], "a") as log:
                log.write("built\\n")
            time.sleep(1.0)
            (directory / "weights").write_bytes(bytes(100))

        print(obtain(Path(sys.argv[1]), "m", build, NoProgress()))
    """)
    command = [sys.executable, "-c", script, str(tmp_path / "cache"), str(tmp_path / "log")]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=120)[0].strip() for process in processes]
    assert outputs == [str(tmp_path / "cache" / "m")] * 2
    assert (tmp_path / "log").read_text() == "built\n"


def test_verify_names_a_truncated_file(tmp_path):
    directory = obtain(tmp_path, "m", write_model, SILENT)
    (directory / "weights").write_bytes(bytes(999))
    with pytest.raises(ModelLoadError, match=rf"{directory}/weights is damaged: 999 bytes instead of 1000; delete"):
        obtain(tmp_path, "m", write_model, SILENT)


def test_verify_names_a_changed_file(tmp_path):
    directory = obtain(tmp_path, "m", write_model, SILENT)
    (directory / "weights").write_bytes(bytes(999) + b"x")
    with pytest.raises(ModelLoadError, match=rf"{directory}/weights is damaged: its SHA-256 .*; delete {directory}"):
        verify(directory, SILENT)


def test_verify_names_a_missing_file(tmp_path):
    directory = obtain(tmp_path, "m", write_model, SILENT)
    (directory / "weights").unlink()
    with pytest.raises(ModelLoadError, match="weights is missing; delete"):
        verify(directory, SILENT)


@pytest.mark.parametrize("content", [None, "not json", "[]", '{"weights": 3}', '{"weights": {"bytes": 3}}'])
def test_verify_names_a_broken_manifest(tmp_path, content):
    directory = obtain(tmp_path, "m", write_model, SILENT)
    manifest = directory / cache.MANIFEST
    manifest.unlink()
    if content is not None:
        manifest.write_text(content)
    with pytest.raises(ModelLoadError, match=r"manifest.json cannot be read .*; delete"):
        verify(directory, SILENT)


def test_manifest_states_size_and_hash(tmp_path):
    directory = obtain(tmp_path, "m", write_model, SILENT)
    stated = json.loads((directory / cache.MANIFEST).read_text())
    assert stated["weights"] == {"bytes": 1000, "sha256": sha256(directory / "weights")}
    assert set(stated) == {"config.json", "weights"}


def test_cache_root_order(tmp_path, monkeypatch):
    monkeypatch.delenv("ESPALIER_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_root(None).name == "espalier"
    monkeypatch.setenv("ESPALIER_CACHE_DIR", str(tmp_path / "variable"))
    assert cache_root(None) == tmp_path / "variable"
    assert cache_root(tmp_path / "argument") == tmp_path / "argument"
