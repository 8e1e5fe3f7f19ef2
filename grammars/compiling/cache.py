"""A least-recently-used cache bounded by count and by cost.

Invariant: after every `put` there are at most `max_entries` entries and their costs, *as they are now*, sum to at most
`max_cost`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

ValueT = TypeVar("ValueT")


class BoundedCache(Generic[ValueT]):
    """Keys to values; ``cost`` is asked again at every `put`, since values may grow while they are kept."""

    __slots__ = ("_cost", "_entries", "_max_cost", "_max_entries")

    def __init__(self, *, max_entries: int, max_cost: int, cost: Callable[[ValueT], int]) -> None:
        self._entries: OrderedDict[str, ValueT] = OrderedDict()
        self._max_entries = max_entries
        self._max_cost = max_cost
        self._cost = cost

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def total_cost(self) -> int:
        """Sum of the costs as they are now."""
        return sum(map(self._cost, self._entries.values()))

    def get(self, key: str) -> ValueT | None:
        """The value, which becomes the most recently used one, or None."""
        value = self._entries.get(key)
        if value is not None:
            self._entries.move_to_end(key)
        return value

    def put(self, key: str, value: ValueT) -> None:
        """Add or replace; the least recently used entries make room, the new one itself last."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        total = self.total_cost
        while len(self._entries) > self._max_entries or total > self._max_cost:
            _, evicted = self._entries.popitem(last=False)
            total -= self._cost(evicted)
