"""Fixtures that several folders' tests share."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from engine.loading.files import ModelFiles

# Read when torch loads OpenMP: threads that wait sleep soon, so that tests do not fight with the servers they start.
os.environ.setdefault("GOMP_SPINCOUNT", "20000")

# Whoever runs the tests in the background of a shell has them, and the processes that they start, ignore interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Timings never decide a test. Examples are fixed where a landing depends on them, and new ones everywhere else.
settings.register_profile("espalier", deadline=None)
settings.register_profile("espalier-ci", deadline=None, derandomize=True)
settings.load_profile("espalier-ci" if os.environ.get("CI") else "espalier")


@pytest.fixture(autouse=True)
def seeded(request: pytest.FixtureRequest) -> None:
    """Global generators start from the test's name, so that no test hangs on luck or on its neighbours."""
    seed = zlib.crc32(request.node.nodeid.encode())
    random.seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(seed)


@pytest.fixture(scope="session")
def tiny_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Factory of seeded tiny model directories: ``tiny_model_dir(seed=0, **overrides of config.json)``.

    Equal arguments give the same directory, which tests must not change. It holds config.json, model.safetensors,
    tokenizer.json (byte-level BPE, every byte a token), tokenizer_config.json (with a chat template) and
    generation_config.json.
    """
    from tests.tiny_model import write_tiny_model  # noqa: PLC0415 (loads torch, which most tests do without)

    made: dict[str, Path] = {}

    def make(*, seed: int = 0, **overrides: Any) -> Path:
        key = json.dumps([seed, overrides], sort_keys=True)
        if key not in made:
            made[key] = tmp_path_factory.mktemp("tiny-model")
            write_tiny_model(made[key], seed, overrides)
        return made[key]

    return make


@pytest.fixture(scope="session")
def default_model_files() -> ModelFiles:
    """The default model, fetched and converted by the product's own path into the user's cache."""
    from engine.loading.resolve import resolve_model  # noqa: PLC0415 (loads torch, which most tests do without)

    return resolve_model(None)
