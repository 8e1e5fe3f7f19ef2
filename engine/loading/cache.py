"""The directories of converted models in the user's cache.

A directory is built under a temporary name and renamed when it is complete, so that a reader finds all of it or none.
Invariant: a file in a published directory has the size and SHA-256 that its manifest states, or `verify` names it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs
from filelock import FileLock, Timeout

from decoding.errors import ModelLoadError
from engine.loading.progress import ProgressReporter

CACHE_VARIABLE = "ESPALIER_CACHE_DIR"
MANIFEST = "manifest.json"


def cache_root(cache_dir: Path | None) -> Path:
    """``cache_dir``, else the directory that ESPALIER_CACHE_DIR names, else the user's cache directory."""
    if cache_dir is not None:
        return cache_dir
    return Path(os.environ.get(CACHE_VARIABLE) or platformdirs.user_cache_path("espalier"))


def obtain(root: Path, name: str, build: Callable[[Path], None], progress: ProgressReporter) -> Path:
    """The published directory ``root / name``; where there is none, let ``build`` fill it.

    Of several processes one builds and the others wait for it. Raises ModelLoadError where a published file is damaged,
    where the disk is full, or where the cache cannot be written; nothing half-built stays behind.
    """
    directory = root / name
    if not directory.exists():
        with _disk_errors(root), _exclusive(root, name, progress):
            # Another process may have published it while this one waited.
            if not directory.exists():
                _build(directory, build)
    verify(directory, progress)
    return directory


def verify(directory: Path, progress: ProgressReporter) -> None:
    """Raise ModelLoadError where a file of a published directory is missing or is not what was written."""
    mend = f"delete {directory} and start again to make it anew"
    try:
        stated: dict[str, dict[str, object]] = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
        sizes = {name: (entry["bytes"], entry["sha256"]) for name, entry in stated.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelLoadError(f"{directory / MANIFEST} cannot be read ({error}); {mend}") from error
    with progress.task(f"Checking {directory.name}") as update:
        for done, (name, (size, digest)) in enumerate(sizes.items()):
            update(done, len(sizes))
            path = directory / name
            if not path.is_file():
                raise ModelLoadError(f"{path} is missing; {mend}")
            if path.stat().st_size != size:
                raise ModelLoadError(f"{path} is damaged: {path.stat().st_size} bytes instead of {size}; {mend}")
            if sha256(path) != digest:
                raise ModelLoadError(f"{path} is damaged: its SHA-256 is not the one that was written; {mend}")
        update(len(sizes), len(sizes))


def sha256(path: Path) -> str:
    """Hexadecimal SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _build(directory: Path, build: Callable[[Path], None]) -> None:
    # Whoever left these died: the lock is ours.
    for leftover in directory.parent.glob(f".{directory.name}.*.partial"):
        shutil.rmtree(leftover)
    partial = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", suffix=".partial", dir=directory.parent))
    try:
        build(partial)
        files = sorted(path for path in partial.iterdir() if path.is_file())
        entries = {path.name: {"bytes": path.stat().st_size, "sha256": sha256(path)} for path in files}
        (partial / MANIFEST).write_text(json.dumps(entries, indent=1), encoding="utf-8")
        # Temporary directories and safetensors files are private; a cache may be shared.
        partial.chmod(0o755)
        for path in files:
            path.chmod(0o644)
        partial.rename(directory)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def _exclusive(root: Path, name: str, progress: ProgressReporter) -> Iterator[None]:
    root.mkdir(parents=True, exist_ok=True)
    lock = FileLock(root / f".{name}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        with progress.task(f"Waiting for another process that prepares {name}"):
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _disk_errors(root: Path) -> Iterator[None]:
    try:
        yield
    except ModelLoadError:
        raise
    except Exception as error:
        if is_disk_full(error):
            raise ModelLoadError(
                f"the disk of {root} is full; free some space, or set {CACHE_VARIABLE} to a directory on another disk"
            ) from error
        if isinstance(error, OSError):
            raise ModelLoadError(
                f"the cache directory {root} cannot be written ({error}); set {CACHE_VARIABLE} to one that can"
            ) from error
        raise


def is_disk_full(error: Exception) -> bool:
    """Whether ``error`` says so: by number where Python raised it, by text where safetensors or pip did."""
    return getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "No space left on device" in str(error)
