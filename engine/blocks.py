"""Who owns which KV block: free list, reference counts and the prefix index.

A block is in exactly one state:

    free ──allocate──► used ──release, not indexed──► free
                        │ ▲
      release, indexed  ▼ │ lookup (hit)
                       cached ──evicted by allocate (least recently released first)──► used

Invariant: ``free + cached + used == total`` (`check`), and an indexed block's content never changes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class _Entry:
    """What an indexed block holds: its prefix key, its parent's key, and its tokens."""

    key: bytes
    parent: bytes
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockCounts:
    """Blocks by state."""

    total: int
    free: int
    cached: int
    used: int


class BlockPool:
    """Allocation, sharing and reuse of ``num_blocks`` blocks."""

    def __init__(self, num_blocks: int) -> None:
        # A stack, so that memory which was touched before is touched again first.
        self._free = list(range(num_blocks - 1, -1, -1))
        self._references = [0] * num_blocks
        self._num_used = 0
        self._cached: OrderedDict[int, None] = OrderedDict()
        self._index: dict[bytes, int] = {}
        self._entries: list[_Entry | None] = [None] * num_blocks

    @property
    def num_available(self) -> int:
        """Blocks that `allocate` can hand out: free ones and cached ones."""
        return len(self._free) + len(self._cached)

    def allocate(self, count: int) -> list[int]:
        """``count`` blocks with one reference each; the caller made sure that they are available."""
        assert 0 <= count <= self.num_available
        return [self._take() for _ in range(count)]

    def share(self, blocks: Iterable[int]) -> None:
        """One more reference to blocks in use."""
        for block in blocks:
            assert self._references[block] > 0
            self._references[block] += 1

    def is_shared(self, block: int) -> bool:
        """More than one sequence refers to the block, so that a write must copy it first."""
        return self._references[block] > 1

    def is_indexed(self, block: int) -> bool:
        """The prefix index may hand the block to others, so that its content must not change."""
        return self._entries[block] is not None

    def release(self, blocks: Iterable[int]) -> None:
        """Drop one reference to each. Later blocks are evicted before earlier ones, so give a table in order."""
        for block in reversed(list(blocks)):
            self._references[block] -= 1
            assert self._references[block] >= 0
            if self._references[block] == 0:
                self._num_used -= 1
                if self._entries[block] is None:
                    self._free.append(block)
                else:
                    self._cached[block] = None

    def insert(self, block: int, *, key: bytes, parent: bytes, tokens: Sequence[int]) -> None:
        """Make a full block of committed tokens findable. The first block of a key stays, others are not indexed."""
        assert self._references[block] > 0
        if key not in self._index and self._entries[block] is None:
            self._index[key] = block
            self._entries[block] = _Entry(key, parent, tuple(tokens))

    def lookup(self, key: bytes, *, parent: bytes, tokens: Sequence[int]) -> int | None:
        """The block of that key, not yet referenced by the caller; parent and tokens are compared, not only the key."""
        block = self._index.get(key)
        if block is None:
            return None
        entry = self._entries[block]
        assert entry is not None
        return block if entry.parent == parent and entry.tokens == tuple(tokens) else None

    def is_cached(self, block: int) -> bool:
        """The block is indexed and nobody refers to it, so that claiming it takes one of the available blocks."""
        return block in self._cached

    def claim(self, blocks: Iterable[int]) -> None:
        """One reference to each block that `lookup` found, cached or in use."""
        for block in blocks:
            if self._references[block] == 0:
                self._num_used += 1
                del self._cached[block]
            self._references[block] += 1

    def counts(self) -> BlockCounts:
        """Blocks by state."""
        total = len(self._references)
        return BlockCounts(total=total, free=len(self._free), cached=len(self._cached), used=self._num_used)

    def check(self) -> None:
        """Assert the accounting: every block is in one state, and the index names blocks that hold what it says."""
        counts = self.counts()
        assert counts.free + counts.cached + counts.used == counts.total
        assert counts.used == sum(1 for references in self._references if references)
        assert not set(self._free) & set(self._cached)
        assert all(self._references[block] == 0 for block in (*self._free, *self._cached))
        assert len(set(self._free)) == len(self._free)
        indexed = {block for block, entry in enumerate(self._entries) if entry is not None}
        assert indexed == set(self._index.values())
        assert not indexed & set(self._free)

    def _take(self) -> int:
        if self._free:
            block = self._free.pop()
        else:
            block, _ = self._cached.popitem(last=False)
            entry = self._entries[block]
            assert entry is not None
            del self._index[entry.key]
            self._entries[block] = None
        self._references[block] = 1
        self._num_used += 1
        return block
