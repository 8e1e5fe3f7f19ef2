"""Languages with look-around, or whose shortest words count, as plain expressions.

The states of the automaton are eliminated one by one (Brzozowski and McCluskey 1963), over characters, because
llguidance takes no expressions over bytes. Invariant: the result is built of characters, concatenation, union and
repetition alone.
"""

from __future__ import annotations

from decoding.errors import ConstraintError, GrammarStateError
from grammars.regular import expressions as e
from grammars.regular.automaton import Automaton, build
from grammars.regular.charset import CharSet

MAX_STATES = 1_000
MAX_SIZE = 50_000
"""Operators and leaves of the result."""

_END = -1
_LEADING = ((0x00, 0x7F, 0, 0x7F), (0xC2, 0xDF, 1, 0x1F), (0xE0, 0xEF, 2, 0x0F), (0xF0, 0xF4, 3, 0x07))
"""First and last leading byte, continuation bytes after it, bits of it that belong to the code point (RFC 3629)."""


def plain(expression: e.Expression, *, shortest: bool, field: str) -> e.Expression:
    """The same language without look-around; with ``shortest`` only words that begin with no other word.

    Raises ConstraintError where that takes more than MAX_STATES or MAX_SIZE.
    """
    automaton = build(expression, field=field)
    try:
        edges = _edges(automaton, shortest=shortest)
        return _eliminated(edges, automaton.start)
    except (_TooLargeError, GrammarStateError):
        message = "has look-around or lazy counts in too large a terminal; write it without"
        raise ConstraintError(field, message) from None


class _TooLargeError(Exception):
    pass


Edges = dict[int, dict[int, e.Expression]]
"""From a state to others, or to `_END`, and what is read on the way."""

Spans = tuple[tuple[int, int, int], ...]
"""First and last code point, ascending, and the state after them."""


def _edges(automaton: Automaton, *, shortest: bool) -> Edges:
    edges: Edges = {}
    known: dict[tuple[int, int], Spans] = {}
    pending = [automaton.start]
    while pending:
        state = pending.pop()
        if state in edges:
            continue
        if len(edges) >= MAX_STATES:
            raise _TooLargeError
        edges[state] = outgoing = {}
        if automaton.accepting(state):
            outgoing[_END] = e.EPSILON
            if shortest:
                continue
        ranges: dict[int, list[tuple[int, int]]] = {}
        for first, last, after in _characters(automaton, state, known):
            ranges.setdefault(after, []).append((first, last))
        for after, spans in ranges.items():
            outgoing[after] = e.chars(CharSet.from_ranges(spans))
            pending.append(after)
    return edges


def _characters(automaton: Automaton, state: int, known: dict[tuple[int, int], Spans]) -> Spans:
    """Where each character leads that a word can go on with."""
    row = automaton.row(state)
    spans: list[tuple[int, int, int]] = []
    for first, last, length, bits in _LEADING:
        for byte in range(first, last + 1):
            if row[byte]:
                base = (byte & bits) << 6 * length
                _append(spans, base, _continuations(automaton, int(row[byte]), length, known))
    return tuple(spans)


def _continuations(automaton: Automaton, state: int, length: int, known: dict[tuple[int, int], Spans]) -> Spans:
    """Where the last ``length`` bytes of a character lead; code points count from 0."""
    if length == 0:
        return ((0, 0, state),)
    if (state, length) not in known:
        row = automaton.row(state)
        spans: list[tuple[int, int, int]] = []
        for byte in range(0x80, 0xC0):
            if row[byte]:
                base = (byte & 0x3F) << 6 * (length - 1)
                _append(spans, base, _continuations(automaton, int(row[byte]), length - 1, known))
        known[state, length] = tuple(spans)
    return known[state, length]


def _append(spans: list[tuple[int, int, int]], base: int, more: Spans) -> None:
    for first, last, after in more:
        if spans and spans[-1][1:] == (base + first - 1, after):
            spans[-1] = (spans[-1][0], base + last, after)
        else:
            spans.append((base + first, base + last, after))


def _eliminated(edges: Edges, start: int) -> e.Expression:
    incoming = {state: {other for other, out in edges.items() if state in out} for state in edges}
    while len(edges) > 1:
        state = min(edges.keys() - {start}, key=lambda state: (len(incoming[state]) * len(edges[state]), state))
        outgoing = edges.pop(state)
        loop = outgoing.pop(state, None)
        middle = e.EPSILON if loop is None else e.star(loop)
        for after in outgoing.keys() - {_END}:
            incoming[after].discard(state)
        for other in incoming.pop(state) - {state}:
            before = edges[other].pop(state)
            for after, expression in outgoing.items():
                path = e.concat(before, middle, expression)
                known = edges[other].get(after)
                edges[other][after] = merged = path if known is None else e.union(known, path)
                if merged.size > MAX_SIZE:
                    raise _TooLargeError
                if after != _END:
                    incoming[after].add(other)
    loop = edges[start].get(start)
    end = edges[start].get(_END, e.EMPTY)
    return end if loop is None else e.concat(e.star(loop), end)
