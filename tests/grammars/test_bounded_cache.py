from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from grammars.compiling.cache import BoundedCache


class Twin:
    """A list, most recently used last."""

    def __init__(self, max_entries: int, max_cost: int) -> None:
        self.entries: list[tuple[str, list[int]]] = []
        self.max_entries, self.max_cost = max_entries, max_cost

    def get(self, key: str) -> list[int] | None:
        for index, (name, value) in enumerate(self.entries):
            if name == key:
                self.entries.append(self.entries.pop(index))
                return value
        return None

    def put(self, key: str, value: list[int]) -> None:
        self.entries = [entry for entry in self.entries if entry[0] != key] + [(key, value)]
        while len(self.entries) > self.max_entries or sum(v[0] for _, v in self.entries) > self.max_cost:
            self.entries.pop(0)


STEPS = st.lists(st.tuples(st.sampled_from(["get", "put"]), st.sampled_from("abcdef"), st.integers(1, 6)), max_size=40)


@given(STEPS, st.integers(1, 4), st.integers(1, 12))
def test_cache_is_a_bounded_list_of_the_most_recent(
    steps: list[tuple[str, str, int]], max_entries: int, max_cost: int
) -> None:
    cache = BoundedCache[list[int]](max_entries=max_entries, max_cost=max_cost)
    twin = Twin(max_entries, max_cost)
    for action, key, cost in steps:
        if action == "put":
            value = [cost]
            cache.put(key, value, cost)
            twin.put(key, value)
            assert len(cache) <= max_entries
            assert cache.total_cost <= max_cost
        assert cache.get(key) is twin.get(key)
    assert len(cache) == len(twin.entries)
