"""Which terminals can stand at the same place of a text, and which can come next.

A position is a place in the rules where a terminal is written. Positions and their successors are those of Glushkov's
automaton, with references followed into their rules; where a rule ends, whatever follows any reference to it may come.
Invariant: the answers are upper bounds: no text brings together what is not listed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from grammars.context_free.overlap import TooMuchWorkError
from grammars.context_free.syntax import (
    Choice,
    Node,
    Reference,
    Repeat,
    Sequence,
    Syntax,
    Terminal,
    references,
    walk,
)

PositionSet = int
"""Bit p stands for position p."""

MAX_POSITIONS = 2_000
MAX_PAIRS = 300_000
"""Pairs of positions that can stand at the same place."""


class Positions:
    """The positions of a syntax, all of whose rules are reachable.

    Attributes:
        terminals: what is written at each position.
        first: where a text can start.
        follow: for each position, where a text can go on after a word there.
    """

    def __init__(self, syntax: Syntax) -> None:
        """Raises TooMuchWorkError where there are more than MAX_POSITIONS."""
        self._rules = syntax.rules
        nodes = [node for body in syntax.rules.values() for node in walk(body)]
        self.terminals = [node for node in nodes if isinstance(node, Terminal)]
        if len(self.terminals) > MAX_POSITIONS:
            raise TooMuchWorkError
        self._index = {node: position for position, node in enumerate(self.terminals)}
        users: dict[str, set[str]] = {name: set() for name in syntax.rules}
        for name, body in syntax.rules.items():
            for used in references(body):
                users[used].add(name)
        self._starts = _least_fixpoint(syntax.rules, users, self._start_of, (0, False))
        self.first = self._starts[syntax.start][0]
        self.follow: list[PositionSet] = [0] * len(self.terminals)
        self._ends: dict[str, PositionSet] = dict.fromkeys(syntax.rules, 0)
        self._changed = list(syntax.rules)
        while self._changed:
            name = self._changed.pop()
            self._note(syntax.rules[name], self._ends[name])

    def together(self, share: Callable[[int, int], bool]) -> list[PositionSet]:
        """For each position, those where a word can begin at the same place of a text.

        ``share(p, q)`` tells whether the terminals of two positions have a word in common. It holds that words
        end only where all that began with them and are equal so far can end. Raises TooMuchWorkError.
        """
        together: list[PositionSet] = [0] * len(self.terminals)
        met: set[tuple[PositionSet, PositionSet]] = set()
        pending: list[tuple[int, int]] = []
        num_pairs = 0

        def meet(ones: PositionSet, others: PositionSet) -> None:
            if (ones, others) in met:  # few sets follow many positions
                return
            met.add((ones, others))
            for one in members(ones):
                new = others & ~together[one]
                together[one] |= new
                pending.extend((one, other) for other in members(new))

        meet(self.first, self.first)
        while pending:
            num_pairs += 1
            if num_pairs + len(pending) > MAX_PAIRS:
                raise TooMuchWorkError
            one, other = pending.pop()
            if one == other or share(one, other):
                meet(self.follow[one], self.follow[other])
                meet(self.follow[other], self.follow[one])
        return together

    def _start_of(self, node: Node, known: Mapping[str, tuple[PositionSet, bool]]) -> tuple[PositionSet, bool]:
        """Where a text of the node can start, and whether it can be empty."""
        match node:
            case Terminal():
                return 1 << self._index[node], False
            case Reference(name=name):
                return known[name]
            case Repeat(body=body, least=least):
                first, is_nullable = self._start_of(body, known)
                return first, is_nullable or least == 0
            case Choice(branches=branches):
                starts = [self._start_of(branch, known) for branch in branches]
                return _union(first for first, _ in starts), any(is_nullable for _, is_nullable in starts)
            case Sequence(parts=parts):
                first = 0
                for part in parts:
                    more, is_nullable = self._start_of(part, known)
                    first |= more
                    if not is_nullable:
                        return first, False
                return first, True

    def _note(self, node: Node, after: PositionSet) -> None:
        """Take up that ``after`` can follow a text of the node."""
        match node:
            case Terminal():
                self.follow[self._index[node]] |= after
            case Reference(name=name):
                if after & ~self._ends[name]:
                    self._ends[name] |= after
                    self._changed.append(name)
            case Repeat(body=body, most=most):
                self._note(body, after if most == 1 else after | self._start_of(body, self._starts)[0])
            case Choice(branches=branches):
                for branch in branches:
                    self._note(branch, after)
            case Sequence(parts=parts):
                for part in reversed(parts):
                    self._note(part, after)
                    first, is_nullable = self._start_of(part, self._starts)
                    after = first | (after if is_nullable else 0)


def members(positions: PositionSet) -> Iterator[int]:
    """The positions of a set, ascending."""
    while positions:
        lowest = positions & -positions
        yield lowest.bit_length() - 1
        positions ^= lowest


def _least_fixpoint(
    rules: Mapping[str, Node],
    users: Mapping[str, set[str]],
    step: Callable[[Node, Mapping[str, tuple[PositionSet, bool]]], tuple[PositionSet, bool]],
    bottom: tuple[PositionSet, bool],
) -> dict[str, tuple[PositionSet, bool]]:
    values = dict.fromkeys(rules, bottom)
    pending = list(rules)
    while pending:
        name = pending.pop()
        value = step(rules[name], values)
        if value != values[name]:
            values[name] = value
            pending += users[name]
    return values


def _union(sets: Iterator[PositionSet]) -> PositionSet:
    union = 0
    for one in sets:
        union |= one
    return union
