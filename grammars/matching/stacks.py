"""Stacks as a forest: a stack is a node with a handler and the stack below it, so that all matchers share their
bottoms.

Invariant: interned nodes are distinct (equal stacks are one number) and lie below `count`; nodes at or past `count` are
scratch of the walk in progress.
"""

from __future__ import annotations

import numpy as np

EMPTY = 0


class Stacks:
    """The forest of one grammar. Node 0 is the empty stack."""

    def __init__(self) -> None:
        self.handlers = np.zeros(1024, dtype=np.int32)
        self.parents = np.zeros(1024, dtype=np.int32)
        self.count = 1
        self._depths = [0]
        self._ids: dict[tuple[int, int], int] = {}

    def push(self, handler: int, parent: int) -> int:
        """The interned stack with ``handler`` on top of ``parent``."""
        key = (handler, parent)
        node = self._ids.get(key)
        if node is None:
            if self.count == len(self.handlers):
                self.grow()
            node = self._ids[key] = self.count
            self.handlers[node] = handler
            self.parents[node] = parent
            self._depths.append(self._depths[parent] + 1)
            self.count += 1
        return node

    def adopt(self, node: int) -> dict[int, int]:
        """Intern the stack ``node``, which may rest on scratch nodes: the interned number of each scratch node in
        it.
        """
        chain = []
        while node >= self.count:
            chain.append((node, int(self.handlers[node])))
            node = int(self.parents[node])
        interned = {}
        for scratch, handler in reversed(chain):
            node = interned[scratch] = self.push(handler, node)
        return interned

    def depth(self, node: int) -> int:
        """How many handlers an interned stack holds."""
        return self._depths[node]

    def grow(self) -> None:
        """Double the room."""
        self.handlers = np.concatenate([self.handlers, np.zeros_like(self.handlers)])
        self.parents = np.concatenate([self.parents, np.zeros_like(self.parents)])
