"""Stacks as a forest: a stack is a node with a handler and the stack below it, so that matchers share their bottoms.

Invariant: interned nodes are distinct (equal stacks are one number) and lie below `count`; nodes at or past `count` in
the arrays are scratch of the walk in progress.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

EMPTY = 0


class Stacks:
    """The forest of one grammar. Node 0 is the empty stack.

    Attributes:
        nodes: int32 [room, 2], the handler of each node and the stack below it, with room for scratch nodes.
        handler_of, parent_of: the same of interned nodes, for reading single ones from Python.
        depth_of: how many handlers each interned stack holds.
    """

    def __init__(self) -> None:
        self.nodes: npt.NDArray[np.int32] = np.zeros((1024, 2), dtype=np.int32)
        self.handler_of = [0]
        self.parent_of = [EMPTY]
        self.depth_of = [0]
        self._ids: dict[tuple[int, int], int] = {}

    @property
    def count(self) -> int:
        """How many nodes are interned; the first scratch node."""
        return len(self.handler_of)

    def push(self, handler: int, parent: int) -> int:
        """The interned stack with ``handler`` on top of ``parent``."""
        key = (handler, parent)
        node = self._ids.get(key)
        if node is None:
            node = self._ids[key] = len(self.handler_of)
            if node == len(self.nodes):
                self.grow()
            self.nodes[node] = key
            self.handler_of.append(handler)
            self.parent_of.append(parent)
            self.depth_of.append(self.depth_of[parent] + 1)
        return node

    def grow(self) -> None:
        """Double the room."""
        self.nodes = np.concatenate([self.nodes, np.zeros_like(self.nodes)])
