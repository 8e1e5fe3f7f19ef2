"""From what the user calls a model to files on disk.

Invariant: what is returned has been fetched, converted and checked; nothing later needs a network.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from decoding.errors import ModelLoadError
from engine.loading.cache import cache_root, obtain
from engine.loading.directory import read_directory
from engine.loading.fetch import DEFAULT_MODEL, GGUF_NAME, fetch_default_gguf
from engine.loading.files import ModelFiles
from engine.loading.gguf_convert import convert_gguf
from engine.loading.hub import fetch_from_hub
from engine.loading.progress import NoProgress, ProgressReporter

_CONVERTED = "converted-1"
"""Subdirectory of the cache; the number changes with what the conversion writes."""

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def resolve_model(
    model: str | None,
    *,
    cache_dir: Path | None = None,
    load_format: str = "auto",
    progress: ProgressReporter | None = None,
) -> ModelFiles:
    """Find, fetch or convert a model.

    Args:
        model: None or ``SmolLM2-135M-Instruct`` for the default model; the path of a directory or of a GGUF file; or
            a hub id such as ``Qwen/Qwen3-0.6B``. A path that exists is a path.
        cache_dir: where converted models are kept; None for ESPALIER_CACHE_DIR or the user's cache directory.
        load_format: with ``dummy`` the hub's weights are not fetched.
        progress: where work that takes long is shown; None for nowhere.

    Raises ModelLoadError with the reason and its mend.
    """
    reporter = progress or NoProgress()
    root = cache_root(cache_dir) / _CONVERTED
    if model is None or model == DEFAULT_MODEL:
        directory = obtain(root, DEFAULT_MODEL, lambda target: _build_default(target, reporter), reporter)
        return read_directory(directory, DEFAULT_MODEL, gguf=directory / GGUF_NAME)
    path = Path(model).expanduser()
    if path.is_dir():
        return read_directory(path, path.resolve().name)
    if path.is_file():
        if path.suffix != ".gguf":
            raise ModelLoadError(f"{path} is a file but no .gguf; --model takes a directory, a GGUF file or a hub id")
        name = _cache_name(path)
        directory = obtain(root, name, lambda target: convert_gguf(path, target, reporter), reporter)
        return read_directory(directory, path.stem, gguf=path)
    if _HUB_ID.fullmatch(model):
        return read_directory(fetch_from_hub(model, weights=load_format != "dummy"), model)
    raise ModelLoadError(
        f"there is no model {model!r}: neither a directory, nor a GGUF file, nor a hub id (owner/name); "
        f"without --model, {DEFAULT_MODEL} is served"
    )


def _build_default(target: Path, progress: ProgressReporter) -> None:
    convert_gguf(fetch_default_gguf(target, progress), target, progress)


def _cache_name(gguf: Path) -> str:
    """One name for each state of a file: path, size and time of change."""
    state = gguf.stat()
    key = f"{gguf.resolve()}\n{state.st_size}\n{state.st_mtime_ns}"
    return f"{gguf.stem}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
