"""Full collections happen between steps alone."""

from __future__ import annotations

import gc

import pytest

from service import garbage


class Node:
    def __init__(self):
        self.me = self


@pytest.fixture(autouse=True)
def restored():
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


def full_collections():
    return gc.get_stats()[2]["collections"]


def test_the_interpreter_begins_no_full_collection_by_itself():
    garbage.settle()
    before = full_collections()
    kept = [Node() for _ in range(30_000) for _ in range(20)]
    assert len(kept) == 600_000
    assert full_collections() == before


def test_a_full_collection_comes_when_idle_and_sooner_or_later_in_any_case(monkeypatch):
    garbage.settle()
    monkeypatch.setattr(gc, "get_count", lambda: (0, 0, garbage.IDLE_AFTER))
    assert not garbage.collect_when_due(is_idle=False)
    before = full_collections()
    assert garbage.collect_when_due(is_idle=True)
    assert full_collections() == before + 1
    monkeypatch.setattr(gc, "get_count", lambda: (0, 0, garbage.BUSY_AFTER))
    assert garbage.collect_when_due(is_idle=False)
