"""The compiled inner loop: which tokens are live, over a part of the token trie.

A *range* is a run of sibling subtrees of the trie with the state and stack in which they are to be read. Stacks are
nodes of a forest (`Stacks`): node 0 is the *base*, below which this walk does not know the stack; every other node has
a handler and a parent. Pushes of a walk take fresh nodes past the interned ones.

Invariant: this only reads the tables. Where a row or an outcome is missing, and where the base is popped, the range
that remains is reported, and the walk goes on elsewhere.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from numba import njit

Ints: TypeAlias = npt.NDArray[np.int32]
Bits: TypeAlias = npt.NDArray[np.uint32]
Arrays: TypeAlias = tuple[npt.NDArray[np.generic], ...]

BASE = 0
MISSING_ROW = -1
RANGE_FIELDS = 7
"""Columns of a range: first node, end node, state, stack, what was read on the way (see `_HOLDS_WORD`); then, of
a miss, what is missing, as (state, MISSING_ROW) or (handler, outcome); of an exit, the outcome by which the base was
popped."""
NUM_COUNTS = 4
"""Columns of counts: misses, exits and whole-word tokens written so far, and the next fresh stack node."""

_BYTE, _DEPTH, _SKIP, _FIRST = range(4)  # as in grammars.matching.trie
_UNBUILT = -2  # as in grammars.matching.tables
_BEGIN, _END, _STATE, _STACK, _WORD, _SUBJECT, _DETAIL = range(RANGE_FIELDS)
_MISSES, _EXITS, _WHOLE, _TOP = range(NUM_COUNTS)
_READ, _DEAD, _MISSING, _LEFT, _LEFT_BEFORE = range(5)
"""What became of a byte: read; illegal; unknown yet; the base was popped by it, or before it."""


_HOLDS_WORD = 1
"""A token that comes here holds a whole remembered word, or one and the beginning of a careful one."""
_AFTER_POP = 2
"""A stack was popped on the way."""


@njit(cache=True, nogil=True)
def _cross(  # noqa: C901, PLR0911, PLR0917 - numba takes no keywords
    byte: int, state: int, stack: int, word: int, top: int, first_scratch: int, tables: Arrays, stacks: Ints
) -> tuple[int, int, int, int, int, int, int]:
    """Read a byte that is no plain transition: (fate, state, stack, word, top, and the last two columns of a range)."""
    rows, final, actions, handlers, resolved = tables
    while True:
        code = rows[state, byte]
        if code > 0:
            return _READ, code, stack, word, top, 0, 0
        if code == 0 and final[state] == _UNBUILT:
            return _MISSING, 0, 0, 0, top, state, MISSING_ROW
        if code < 0 and actions[-code, 0] > 0:
            pushed = actions[-code, 0]
            stacks[top, 0] = pushed
            stacks[top, 1] = stack
            if word & _AFTER_POP and handlers[pushed, 2]:
                word |= _HOLDS_WORD
            return _READ, actions[-code, 1], top, word, top + 1, 0, 0
        outcome = actions[-code, 2] if code < 0 else final[state]
        if outcome < 0:
            return _DEAD, 0, 0, 0, top, 0, 0
        if stack == BASE:
            return _LEFT if code < 0 else _LEFT_BEFORE, 0, BASE, word | _AFTER_POP, top, outcome, 0
        handler = stacks[stack, 0]
        entered = resolved[handlers[handler, 0] + outcome]
        if entered < 0:
            return _MISSING, 0, 0, 0, top, handler, outcome
        word |= _AFTER_POP
        if outcome < handlers[handler, 1] and stack >= first_scratch:
            word |= _HOLDS_WORD
        state, stack = entered, stacks[stack, 1]
        if code < 0:
            return _READ, state, stack, word, top, 0, 0


@njit(cache=True, nogil=True)
def _report(  # noqa: PLR0917 - numba takes no keywords
    ranges: Ints, count: int, begin: int, end: int, state: int, stack: int, word: int, subject: int, detail: int
) -> None:
    ranges[count, _BEGIN], ranges[count, _END] = begin, end
    ranges[count, _STATE], ranges[count, _STACK] = state, stack
    ranges[count, _WORD], ranges[count, _SUBJECT], ranges[count, _DETAIL] = word, subject, detail


@njit(cache=True, nogil=True)
def walk(  # noqa: C901, PLR0912, PLR0917 - one compiled loop; numba takes no keywords
    ranges: Ints,
    num_ranges: int,
    first_scratch: int,
    nodes: Ints,
    tokens: Ints,
    tables: Arrays,
    stacks: Ints,
    path: Ints,
    bits: Bits,
    misses: Ints,
    exits: Ints,
    whole: Ints,
    counts: Ints,
) -> bool:
    """Set the bit of every live token in the ranges; False where an output array lacks room (grow it and start again).

    ``whole`` collects tokens that hold a whole remembered word, begun and ended in them; ``exits`` the ranges that go
    on below the base. ``counts`` is read and written.
    """
    rows = tables[0]
    for number in range(num_ranges):
        node, end = ranges[number, _BEGIN], ranges[number, _END]
        if node >= end:
            continue
        base_depth = nodes[node, _DEPTH]
        path[0, 0], path[0, 1] = ranges[number, _STATE], ranges[number, _STACK]
        path[0, 2], path[0, 3] = end, ranges[number, _WORD]
        while node < end:
            level = nodes[node, _DEPTH] - base_depth
            here, stack, word = path[level, 0], path[level, 1], path[level, 3]
            state = rows[here, nodes[node, _BYTE]]
            fate = _READ
            if state <= 0:
                if (
                    counts[_MISSES] == len(misses)
                    or counts[_EXITS] == len(exits)
                    or counts[_WHOLE] + nodes[node + 1, _FIRST] - nodes[node, _FIRST] > len(whole)
                    or counts[_TOP] == len(stacks)
                ):
                    return False
                fate, state, stack, word, counts[_TOP], subject, detail = _cross(
                    nodes[node, _BYTE], here, stack, word, counts[_TOP], first_scratch, tables, stacks
                )
                stop = nodes[node, _SKIP]
                if fate == _MISSING:
                    if rows[here, nodes[node, _BYTE]] == 0:
                        stop = path[level, 2]  # the bytes to come will miss the same
                    _report(misses, counts[_MISSES], node, stop, here, path[level, 1], path[level, 3], subject, detail)
                    counts[_MISSES] += 1
                if fate == _LEFT_BEFORE or (fate == _LEFT and node + 1 < stop):
                    begin = node if fate == _LEFT_BEFORE else node + 1
                    _report(exits, counts[_EXITS], begin, stop, 0, BASE, word, subject, detail)
                    counts[_EXITS] += 1
                if fate != _READ and fate != _LEFT:  # noqa: PLR1714 - numba
                    node = stop
                    continue
            for index in range(nodes[node, _FIRST], nodes[node + 1, _FIRST]):
                token = tokens[index]
                bits[token >> 5] |= np.uint32(1) << np.uint32(token & 31)
                if word & _HOLDS_WORD:
                    if counts[_WHOLE] == len(whole):
                        return False
                    whole[counts[_WHOLE]] = token
                    counts[_WHOLE] += 1
            if fate == _LEFT:
                node = nodes[node, _SKIP]
                continue
            path[level + 1, 0], path[level + 1, 1] = state, stack
            path[level + 1, 2], path[level + 1, 3] = nodes[node, _SKIP], word
            node += 1
    return True


@njit(cache=True, nogil=True)
def count_bits(bits: Bits) -> int:
    """How many bits are set."""
    total = np.uint32(0)
    for word in bits:
        if word == 0:
            continue  # most words of most rows
        value = word - ((word >> np.uint32(1)) & np.uint32(0x55555555))
        value = (value & np.uint32(0x33333333)) + ((value >> np.uint32(2)) & np.uint32(0x33333333))
        value = (value + (value >> np.uint32(4))) & np.uint32(0x0F0F0F0F)
        total += np.uint32(value * np.uint32(0x01010101)) >> np.uint32(24)
    return int(total)


@njit(cache=True, nogil=True)
def set_bits(bits: Bits, size: int, wanted: bool, out: npt.NDArray[np.int64]) -> None:
    """The ids below ``size`` whose bit is ``wanted``, ascending, into ``out``, which has just the room."""
    count = 0
    flip = np.uint32(0) if wanted else np.uint32(0xFFFFFFFF)
    for index in range(len(bits)):
        word = bits[index] ^ flip
        if word == 0:
            continue
        for bit in range(32):
            token = 32 * index + bit
            if (word >> np.uint32(bit)) & np.uint32(1) and token < size:
                out[count] = token
                count += 1


@njit(cache=True, nogil=True)
def overlay(  # noqa: C901, PLR0917 - one compiled loop; numba takes no keywords
    blob: npt.NDArray[np.uint8],
    begins: Ints,
    outcomes: Ints,
    low: int,
    high: int,
    depth: int,
    nodes: Ints,
    tokens: Ints,
    bits: Bits,
    exits: Ints,
    num_exits: int,
) -> tuple[int, bool]:
    """Lay words ``low`` to ``high - 1``, of which ``depth`` bytes are read, over the tokens ``bits`` with their
    ``exits``.

    Tokens along a word become live; where a word ends inside a token it exits with its own outcome, or, forbidden, not
    at all (outcome -1). ``exits`` has room for one more range per word; returns how many there are then, and whether
    those that were there before are as they were.
    """
    as_before = True
    for number in range(low, high):
        outcome = outcomes[number]
        node, end = 0, len(nodes) - 1
        last = begins[number + 1]
        for place in range(begins[number] + depth, last):
            while node < end and nodes[node, _BYTE] < blob[place]:
                node = nodes[node, _SKIP]
            if node >= end or nodes[node, _BYTE] != blob[place]:
                break
            end = nodes[node, _SKIP]
            for index in range(nodes[node, _FIRST], nodes[node + 1, _FIRST]):
                bit = np.uint32(1) << np.uint32(tokens[index] & 31)
                if outcome >= 0:
                    bits[tokens[index] >> 5] |= bit
                elif place + 1 == last:
                    bits[tokens[index] >> 5] &= ~bit
            node += 1
            if place + 1 == last:
                for number_of_exit in range(num_exits):
                    if exits[number_of_exit, _BEGIN] == node:
                        as_before = False
                        num_exits -= 1
                        exits[number_of_exit] = exits[num_exits]
                        break
                if outcome >= 0 and node < end:
                    _report(exits, num_exits, node, end, 0, BASE, _AFTER_POP, outcome, 0)
                    num_exits += 1
    return num_exits, as_before


@njit(cache=True, nogil=True)
def measure(  # noqa: PLR0917 - numba takes no keywords
    state: int, nodes: Ints, tables: Arrays, path: Ints, lengths: Ints, closes: Ints
) -> None:
    """Characters on the way to each trie node, read from ``state``, into which bytes lead that end a character.

    ``lengths[node]`` counts those begun, the last one included where it is not whole yet; -1 where the node is dead.
    ``closes[node]`` is 1 where the node's byte exits; it is no part of a character then.
    """
    rows = tables[0]
    path[0, 0], path[0, 1] = state, 0
    node = 0
    while node < len(nodes) - 1:
        level = nodes[node, _DEPTH]
        code = rows[path[level, 0], nodes[node, _BYTE]]
        begun = path[level, 1] + (1 if path[level, 0] == state else 0)
        if code > 0:
            lengths[node], closes[node] = begun, 0
            path[level + 1, 0], path[level + 1, 1] = code, begun
            node += 1
            continue
        for below in range(node, nodes[node, _SKIP]):
            lengths[below], closes[below] = -1, 0
        if code < 0:
            lengths[node], closes[node] = path[level, 1], 1
        node = nodes[node, _SKIP]


@njit(cache=True, nogil=True)
def find(nodes: Ints, text: npt.NDArray[np.uint8]) -> int:
    """The trie node at the end of the path ``text``, or -1."""
    node, end = -1, len(nodes) - 1
    for byte in text:
        node += 1
        while node < end and nodes[node, _BYTE] < byte:
            node = nodes[node, _SKIP]
        if node >= end or nodes[node, _BYTE] != byte:
            return -1
        end = nodes[node, _SKIP]
    return node


@njit(cache=True, nogil=True)
def set_between(bits: Bits, tokens: Ints, lengths: Ints, least: int, most: int) -> None:
    """Set the bits of the tokens whose lengths lie between two bounds, both included."""
    for index in range(len(tokens)):
        if least <= lengths[index] <= most:
            bits[tokens[index] >> 5] |= np.uint32(1) << np.uint32(tokens[index] & 31)


@njit(cache=True, nogil=True)
def clear(bits: Bits, tokens: Ints) -> None:
    """Clear the bits of ``tokens``."""
    for token in tokens:
        bits[token >> 5] &= ~(np.uint32(1) << np.uint32(token & 31))


@njit(cache=True, nogil=True)
def child(nodes: Ints, above: int, byte: int) -> int:
    """The node below ``above`` (-1: the root) on the edge ``byte``, or -1."""
    node = above + 1
    end = len(nodes) - 1 if above < 0 else nodes[above, _SKIP]
    while node < end and nodes[node, _BYTE] < byte:
        node = nodes[node, _SKIP]
    return node if node < end and nodes[node, _BYTE] == byte else -1
