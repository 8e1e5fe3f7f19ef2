"""A draft tree in the making, on which several sources act in turn.

Guesses are merged as into a trie and cut at the first token that the grammar forbids. One fork of the matcher moves
along the tree like a cursor, and only where somebody asks. Invariant: a tree holds legal tokens only, at most `limit`
nodes and at most `width` children of each; the children of a node are all drawn from its proposal, or none of them is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from decoding.distribution import Distribution
from decoding.masks import MaskRow
from decoding.tree import DraftTree
from drafters.protocol import Draft, DraftContext
from grammars.protocol import Matcher


class GrowingTree:
    """The guesses of one sequence so far."""

    __slots__ = (
        "_asked",
        "_at",
        "_children",
        "_cursor",
        "_is_closed",
        "_masks",
        "_parents",
        "_proposals",
        "_rejected",
        "_sources",
        "_tokens",
        "_width",
        "context",
        "limit",
        "mix",
    )

    def __init__(self, context: DraftContext, *, mix: Sequence[str], limit: int, width: int) -> None:
        self.context = context
        self.mix = frozenset(mix)
        self.limit = min(limit, context.limit)
        self._width = width
        self._tokens = [context.tokens[-1]]
        self._parents = [-1]
        self._sources = [""]
        self._children: list[dict[int, int]] = [{}]
        self._masks: dict[int, MaskRow] = {}
        self._proposals: dict[int, Distribution] = {}
        self._asked: set[tuple[str, int]] = set()
        self._rejected = 0
        self._is_closed = False
        self._cursor: Matcher | None = None
        self._at = 0

    def __len__(self) -> int:
        return len(self._tokens)

    @property
    def room(self) -> int:
        """How many more nodes it may have."""
        return 0 if self._is_closed else self.limit - len(self._tokens)

    @property
    def width(self) -> int:
        """Most guesses below one node."""
        return self._width

    @property
    def parents(self) -> Sequence[int]:
        """Parent of each node, -1 for node 0."""
        return self._parents

    @property
    def sources(self) -> Sequence[str]:
        """Who guessed each node, "" for node 0."""
        return self._sources

    @property
    def children(self) -> Sequence[Mapping[int, int]]:
        """Below each node the guessed tokens, in the order in which they were guessed, with their nodes."""
        return self._children

    def legal_below(self, node: int) -> MaskRow | None:
        """What the constraint allows below a node that has children; None without a constraint."""
        return self._masks.get(node)

    def close(self) -> None:
        """Let nothing be added any more."""
        self._is_closed = True

    def tips(self, source: str) -> list[int]:
        """Leaves that ``source`` has neither guessed nor been asked about, oldest first. Each is told once."""
        found = [
            node
            for node, children in enumerate(self._children)
            if not children and self._sources[node] != source and (source, node) not in self._asked
        ]
        self._asked.update((source, node) for node in found)
        return found

    def has_guess_of(self, source: str) -> bool:
        """Whether ``source`` guessed any node."""
        return source in self._sources

    def path(self, node: int) -> list[int]:
        """The guessed tokens that lead to ``node``, its own included; none for node 0."""
        path: list[int] = []
        while node:
            path.append(self._tokens[node])
            node = self._parents[node]
        path.reverse()
        return path

    def tail(self, node: int, count: int) -> list[int]:
        """The last ``count`` tokens of known ones and of the path to ``node``, or as many as there are."""
        path = self.path(node)
        missing = count - len(path)
        return [*self.context.tokens[-missing:], *path] if missing > 0 else path[-count:]

    def matcher(self, node: int) -> Matcher | None:
        """The constraint's state after ``node``, or None without a constraint. Look at it before the next call only.

        Raises GrammarStateError where the bound of its work is exhausted.
        """
        if self.context.matcher is None:
            return None
        if self._cursor is None:
            self._cursor = self.context.matcher.fork()
        if node != self._at:
            self._move(self._cursor, node)
        return self._cursor

    def extend(self, node: int, tokens: Sequence[int], source: str) -> int:
        """Add a run of guesses below ``node``, as far as grammar, limit and width go; the node that it comes to.

        Raises GrammarStateError as `matcher` does.
        """
        for token in tokens:
            child = self._children[node].get(token)
            if child is None:
                if not self.room or len(self._children[node]) >= self._width or node in self._proposals:
                    break
                if not self._is_legal(node, token):
                    self._rejected += 1
                    break
                child = self._add(node, token, source)
            node = child
        return node

    def extend_drawn(self, leaf: int, tokens: Sequence[int], proposal: Distribution, source: str) -> None:
        """Add children of a leaf that were drawn from ``proposal``, in that order and all of them.

        Siblings of other origin would belie the proposal, so that a leaf it has to be; and as long as it has drawn
        children, nobody gives it others.
        """
        assert not self._children[leaf]
        assert len(tokens) <= min(self.room, self._width)
        for token in tokens:
            self._add(leaf, token, source)
        self._proposals[leaf] = proposal

    def draft(self, nodes: Sequence[int] | None = None) -> Draft:
        """The tree as it is now, or the part of it with these ascending nodes, each with its parent.

        What was drawn stays in any case, with what leads to it: whoever prunes has seen it.
        """
        tree = DraftTree(tokens=tuple(self._tokens), parents=tuple(self._parents))
        kept: Sequence[int] = range(len(tree)) if nodes is None else self._with_drawn(nodes)
        numbers = {node: index for index, node in enumerate(kept)}
        return Draft(
            tree=tree if len(kept) == len(tree) else tree.kept(kept),
            sources=tuple(self._sources[node] for node in kept),
            rejected=self._rejected,
            proposals={numbers[node]: proposal for node, proposal in self._proposals.items()},
        )

    def _with_drawn(self, nodes: Sequence[int]) -> Sequence[int]:
        if not self._proposals:
            return nodes
        kept = set(nodes)
        for node in range(len(self)):
            if self._parents[node] in self._proposals:
                step = node
                while step not in kept:
                    kept.add(step)
                    step = self._parents[step]
        return sorted(kept)

    def _is_legal(self, node: int, token: int) -> bool:
        mask = self._masks.get(node)
        if mask is None:
            matcher = self.matcher(node)
            if matcher is None:
                return True
            if matcher.is_finished:
                return False
            mask = self._masks[node] = matcher.mask()
        return token in mask

    def _add(self, node: int, token: int, source: str) -> int:
        child = len(self._tokens)
        self._tokens.append(token)
        self._parents.append(node)
        self._sources.append(source)
        self._children.append({})
        self._children[node][token] = child
        return child

    def _move(self, cursor: Matcher, node: int) -> None:
        """Back to the common ancestor, then down. Parents have smaller numbers, so the larger one climbs."""
        here, there, back = self._at, node, 0
        down: list[int] = []
        while here != there:
            if here > there:
                here = self._parents[here]
                back += 1
            else:
                down.append(self._tokens[there])
                there = self._parents[there]
        cursor.rollback(back)
        for token in reversed(down):
            cursor.advance(token)
        self._at = node
