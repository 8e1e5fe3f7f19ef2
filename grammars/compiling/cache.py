"""A least-recently-used cache bounded by count and by cost.

Invariant: there are never more than `max_entries` entries, and their costs sum to at most `max_cost`.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

ValueT = TypeVar("ValueT")


class BoundedCache(Generic[ValueT]):
    """Keys to values. A value that costs more than everything may cost together is not kept."""

    __slots__ = ("_entries", "_max_cost", "_max_entries", "_total_cost")

    def __init__(self, *, max_entries: int, max_cost: int) -> None:
        self._entries: OrderedDict[str, tuple[ValueT, int]] = OrderedDict()
        self._max_entries = max_entries
        self._max_cost = max_cost
        self._total_cost = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def total_cost(self) -> int:
        """Sum of the costs of what is kept."""
        return self._total_cost

    def get(self, key: str) -> ValueT | None:
        """The value, which becomes the most recently used one, or None."""
        if key not in self._entries:
            return None
        self._entries.move_to_end(key)
        return self._entries[key][0]

    def put(self, key: str, value: ValueT, cost: int) -> None:
        """Add or replace; the least recently used entries make room, the new one itself last."""
        if key in self._entries:
            self._total_cost -= self._entries.pop(key)[1]
        self._entries[key] = (value, cost)
        self._total_cost += cost
        while len(self._entries) > self._max_entries or self._total_cost > self._max_cost:
            _, (_, evicted_cost) = self._entries.popitem(last=False)
            self._total_cost -= evicted_cost
