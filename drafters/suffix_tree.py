"""Counts of every run of up to `DEPTH` tokens, as a tree of runs.

    text  a b a c       root ─ a:2 ─ b:1 ─ a:1 ─ c:1
                             │     └ c:1
                             ├ b:1 ─ a:1 ─ c:1
                             └ c:1

Invariant: removing a text takes back exactly what adding it did, and a run that no text has is not in the tree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

DEPTH = 8
"""Longest run: a context of up to seven tokens and what followed it."""


class _Node:
    __slots__ = ("children", "count")

    def __init__(self) -> None:
        self.count = 0
        self.children: dict[int, _Node] = {}


class SuffixWriter:
    """Adds a text that comes token by token."""

    def __init__(self, root: _Node) -> None:
        self._root = root
        self._open: list[_Node] = []  # the runs that end here, the longest first

    def write(self, token: int) -> None:
        """Add the runs that end with the next token of the text."""
        longer: list[_Node] = []
        for node in (*self._open[-(DEPTH - 1) :], self._root):
            child = node.children.get(token)
            if child is None:
                child = node.children[token] = _Node()
            child.count += 1
            longer.append(child)
        self._open = longer


class SuffixTree:
    """Runs of several texts."""

    def __init__(self) -> None:
        self._root = _Node()

    def writer(self) -> SuffixWriter:
        """For a new text."""
        return SuffixWriter(self._root)

    def add(self, tokens: Sequence[int]) -> None:
        """Add a text."""
        writer = self.writer()
        for token in tokens:
            writer.write(token)

    def remove(self, tokens: Sequence[int]) -> None:
        """Take back a text that was added."""
        for start in range(len(tokens)):
            node = self._root
            for token in tokens[start : start + DEPTH]:
                child = node.children[token]
                child.count -= 1
                if not child.count:
                    del node.children[token]  # the rest of the run hangs below it and was counted once too
                    break
                node = child

    def after(self, text: Sequence[int]) -> tuple[int, Mapping[int, int]]:
        """Length of the longest suffix of ``text`` that something followed, and how often which token did.

        Suffixes of up to DEPTH - 1 tokens count; (0, {}) where not even the last token is known.
        """
        for length in range(min(DEPTH - 1, len(text)), 0, -1):
            node = self._find(text[len(text) - length :])
            if node is not None and node.children:
                return length, {token: child.count for token, child in node.children.items()}
        return 0, {}

    def _find(self, run: Sequence[int]) -> _Node | None:
        node: _Node | None = self._root
        for token in run:
            if node is None:
                return None
            node = node.children.get(token)
        return node
