"""Measuring what a step costs, on a tiny model."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from drafters.choice.costs import MEASURED_ROWS
from engine.build import build_engine
from engine.config import EngineConfig
from engine.costs import REPETITIONS
from engine.loading.directory import read_directory


class Labels:
    """A progress reporter that keeps what it was told."""

    def __init__(self):
        self.told = []

    @contextmanager
    def task(self, label):
        yield lambda done, total: self.told.append((label, done, total))


@pytest.fixture
def build(tiny_model_dir, tmp_path):
    def make(progress, **config):
        defaults = {"dtype": "float32", "device": "cpu", "threads": 1, "kv_cache_tokens": 512, "cache_dir": tmp_path}
        return build_engine(
            EngineConfig(**(defaults | config)), read_directory(tiny_model_dir(), "tiny"), progress=progress
        )

    return make


def test_a_start_measures_once_per_machine_and_model(build, tmp_path):
    first, second, other = Labels(), Labels(), Labels()
    build(first)
    assert first.told[-1] == ("Measuring what steps cost", REPETITIONS, REPETITIONS)
    (kept,) = (tmp_path / "costs").iterdir()
    before = kept.read_bytes()
    build(second)
    assert second.told == []
    assert kept.read_bytes() == before
    build(other, dtype="float64")
    assert other.told
    assert len(list((tmp_path / "costs").iterdir())) == 2


@pytest.mark.parametrize("config", [{"reproducible_drafts": True}, {"drafters": "none"}])
def test_nothing_is_measured_where_nobody_chooses(build, tmp_path, config):
    labels = Labels()
    build(labels, **config)
    assert labels.told == []
    assert not (tmp_path / "costs").exists()


def test_a_cache_smaller_than_the_rows_is_measured_all_the_same(build):
    labels = Labels()
    engine = build(labels, kv_cache_tokens=32)
    assert labels.told
    assert max(MEASURED_ROWS) > engine.card.kv_cache_tokens
    assert engine.stats().blocks.used == 0
