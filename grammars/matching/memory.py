"""Words read so far that must not come again: the open keys of the objects that are open.

Which keys an object already has is no matter of the shared automaton's state (there are too many possibilities), so
every sample carries it along. Invariant: a memory never changes; `after` makes another one.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple


class Happening(enum.Enum):
    """What happened to a stack."""

    PUSHED = enum.auto()
    """A handler that remembers words was pushed: a word begins with the next byte."""
    REMEMBERED = enum.auto()
    """Such a handler was popped with an outcome that remembers its word; the byte read is not part of it."""
    POPPED = enum.auto()
    """Any other pop."""


class Event(NamedTuple):
    """A change of the stack while some bytes were read.

    Attributes:
        kind: what happened.
        node: the stack pushed, or popped from.
        parent: the stack below it.
        position: index of the byte that did it.
    """

    kind: Happening
    node: int
    parent: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WordMemory:
    """The words read above each open stack.

    Attributes:
        frames: (stack node, words read above it), outermost first; only stacks with words.
        partial: the part read so far of a word that may be remembered, or None outside of words.
        partial_node: the stack node pushed where that word began.
        partial_parent: the stack node below it.
    """

    frames: tuple[tuple[int, frozenset[bytes]], ...] = ()
    partial: bytes | None = None
    partial_node: int = 0
    partial_parent: int = 0

    def words_above(self, node: int) -> frozenset[bytes]:
        """The words read above a stack node."""
        for frame, words in reversed(self.frames):
            if frame == node:
                return words
        return frozenset()

    def after(self, text: bytes, events: list[Event]) -> WordMemory | None:
        """The memory after ``text``, during which ``events`` came; None where a word came again."""
        if self is EMPTY_MEMORY and all(event.kind is Happening.POPPED for event in events):
            return self
        frames = list(self.frames)
        prefix, begin = self.partial, 0
        node, parent = self.partial_node, self.partial_parent
        for event in events:
            if event.kind is Happening.PUSHED:
                prefix, begin, node, parent = b"", event.position + 1, event.node, event.parent
            elif event.kind is Happening.REMEMBERED:
                assert prefix is not None
                if not _remember(frames, event.parent, prefix + text[begin : event.position]):
                    return None
                prefix = None
            else:
                if event.node == node:
                    prefix = None
                while frames and frames[-1][0] == event.node:
                    frames.pop()
        if prefix is None:
            return WordMemory(frames=tuple(frames)) if frames else EMPTY_MEMORY
        return WordMemory(frames=tuple(frames), partial=prefix + text[begin:], partial_node=node, partial_parent=parent)


def _remember(frames: list[tuple[int, frozenset[bytes]]], node: int, word: bytes) -> bool:
    """Add a word to a stack's; False where it is there already."""
    if frames and frames[-1][0] == node:
        if word in frames[-1][1]:
            return False
        frames[-1] = (node, frames[-1][1] | {word})
    else:
        frames.append((node, frozenset((word,))))
    return True


EMPTY_MEMORY = WordMemory()
