"""The compiled inner loops: one byte, one token, and the whole token trie.

A *configuration* is a state and a node of the stack forest (`Stacks`): node 0 is the empty stack, and every node has a
handler and a parent below it. Pushes of a walk take fresh nodes past the interned ones.

Invariant: these functions only read the tables; where something is not known yet they report a *miss* and go on
elsewhere, so that the caller can ask the source and resume at the same place.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from numba import njit

Ints: TypeAlias = npt.NDArray[np.int32]
Arrays: TypeAlias = tuple[npt.NDArray[np.generic], ...]

DEAD = 0
MISSING_ROW = -1
MISSING_OUTCOME = -2
MISS_FIELDS = 7
"""Columns of a miss: first node, end node, state, stack, what is missing as (state, -1) or (handler, outcome), and
whether a whole remembered word was read before it."""
POPPED = 0
PUSHED = 1
REMEMBERED = 2
EVENT_FIELDS = 4
"""Columns of an event: what happened (one of the three above), the stack node, its parent, the byte's position."""


@njit(cache=True, nogil=True)
def _note(events: Ints, kind: int, node: int, parent: int) -> None:
    count = events[0, 0] + 1
    events[0, 0] = count
    events[count, 0] = kind
    events[count, 1] = node
    events[count, 2] = parent
    events[count, 3] = events[0, 1]


@njit(cache=True, nogil=True)
def step(  # noqa: C901, PLR0911, PLR0917 - one compiled function; numba takes no keywords
    byte: int, state: int, stack: int, top: int, tables: Arrays, stacks: Arrays, events: Ints
) -> tuple[int, int, int, int, int]:
    """One byte. Returns (state, stack, top, a, b): state > 0 after the byte, 0 where dead, or a miss in (a, b).

    A miss of a row returns MISSING_ROW, with the configuration to resume from in (a, b). A miss of an outcome returns
    MISSING_OUTCOME, with (handler, outcome) in (a, b). Pops, and pushes of handlers that remember words, are appended
    to ``events`` (`EVENT_FIELDS` columns; the number so far stands in ``events[0, 0]``, entries start at row 1).
    """
    rows, expanded, final, actions, first_out, resolved, remembered = tables
    handlers, parents = stacks
    while True:
        if not expanded[state]:
            return MISSING_ROW, stack, top, state, stack
        code = rows[state, byte]
        if code > 0:
            return code, stack, top, 0, 0
        if code < 0:
            pushed = actions[-code, 0]
            if pushed > 0:
                handlers[top] = pushed
                parents[top] = stack
                if remembered[pushed] > 0:
                    _note(events, PUSHED, top, stack)
                return actions[-code, 1], top, top + 1, 0, 0
            outcome = actions[-code, 2]
        else:
            outcome = final[state]
            if outcome < 0:
                return DEAD, stack, top, 0, 0
        if stack == 0:
            return DEAD, stack, top, 0, 0
        handler = handlers[stack]
        entered = resolved[first_out[handler] + outcome]
        if entered < 0:
            return MISSING_OUTCOME, stack, top, handler, outcome
        _note(events, REMEMBERED if outcome < remembered[handler] else POPPED, stack, parents[stack])
        state = entered
        stack = parents[stack]
        if code < 0:
            return state, stack, top, 0, 0


@njit(cache=True, nogil=True)
def follow(  # noqa: PLR0917 - numba takes no keywords
    text: npt.NDArray[np.uint8],
    begin: int,
    state: int,
    stack: int,
    top: int,
    tables: Arrays,
    stacks: Arrays,
    events: Ints,
) -> tuple[int, int, int, int, int, int, int]:
    """The bytes of ``text`` from index ``begin`` on. Returns (status, position, state, stack, top, a, b).

    status is 1 where all were read, else what `step` said of the byte at ``position``; (state, stack) is the
    configuration to resume from there. Every event carries the position of the byte that caused it.
    """
    for position in range(begin, len(text)):
        events[0, 1] = position
        after, next_stack, top, a, b = step(text[position], state, stack, top, tables, stacks, events)
        if after == MISSING_ROW:
            return MISSING_ROW, position, a, b, top, a, MISSING_ROW
        if after <= 0:
            return after, position, state, stack, top, a, b
        state, stack = after, next_stack
    return 1, len(text), state, stack, top, 0, 0


@njit(cache=True, nogil=True)
def walk(  # noqa: PLR0917 - numba takes no keywords
    begin: int,
    end: int,
    state: int,
    stack: int,
    word: int,
    top: int,
    interned: int,
    trie: Arrays,
    tables: Arrays,
    stacks: Arrays,
    path: tuple[Ints, ...],
    legal: npt.NDArray[np.uint8],
    misses: Ints,
    events: Ints,
) -> tuple[int, int]:
    """Set ``legal[token]`` for every live token among the trie nodes ``begin <= node < end``.

    ``state`` and ``stack`` are the configuration above node ``begin``; ``word`` is 1 where a whole remembered word was
    read on the way there; stack nodes from ``interned`` on were made on the way. ``legal`` becomes 1, or 2 for a token
    that holds a whole remembered word (begun and ended in it). Returns (top, number of misses written); where
    ``stacks`` or ``misses`` lack room it returns (-1, 0): make room and start again.
    """
    byte_N, depth_N, skip_N, first_N, tokens = trie
    path_states, path_stacks, path_ends, path_words = path
    if begin >= end:
        return top, 0
    base = depth_N[begin]
    path_states[0] = state
    path_stacks[0] = stack
    path_ends[0] = end
    path_words[0] = word
    count = 0
    node = begin
    room = len(stacks[0]) - 1
    while node < end:
        level = depth_N[node] - base
        here, here_stack = path_states[level], path_stacks[level]
        events[0, 0] = 0
        after, next_stack, top, a, b = step(byte_N[node], here, here_stack, top, tables, stacks, events)
        if top >= room:
            return -1, 0
        if after > 0:
            whole = path_words[level]
            for event in range(1, events[0, 0] + 1):
                if events[event, 0] == REMEMBERED and events[event, 1] >= interned:
                    whole = 1
            for index in range(first_N[node], first_N[node + 1]):
                legal[tokens[index]] = 1 + whole
            path_states[level + 1] = after
            path_stacks[level + 1] = next_stack
            path_ends[level + 1] = skip_N[node]
            path_words[level + 1] = whole
            node += 1
        elif after == DEAD:
            node = skip_N[node]
        else:
            if count >= len(misses):
                return -1, 0
            row_missing = after == MISSING_ROW and a == here
            stop = path_ends[level] if row_missing else skip_N[node]
            misses[count, 0] = node
            misses[count, 1] = stop
            misses[count, 2] = a if after == MISSING_ROW else here
            misses[count, 3] = b if after == MISSING_ROW else here_stack
            misses[count, 4] = a
            misses[count, 5] = MISSING_ROW if after == MISSING_ROW else b
            misses[count, 6] = path_words[level]
            count += 1
            node = stop
    return top, count
