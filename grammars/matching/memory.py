"""Words read so far that must not come again: the open keys of objects that are open, the items of arrays without
repeats.

Which words a container already has is no matter of the shared automaton's state (there are too many possibilities), so
every sample carries them along. Words are in the form in which equal ones are alike: keys and strings have one
spelling, and white space between JSON tokens is left out of items.

Invariant: a memory never changes; `after` makes another one.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple


class Happening(enum.Enum):
    """What happened to a stack."""

    PUSHED = enum.auto()
    """A handler that remembers words was pushed: a word begins."""
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
        is_value: of a push, whether the word is a JSON value and that byte its first one; else it begins after it.
    """

    kind: Happening
    node: int
    parent: int
    position: int
    is_value: bool = False


class Reading(enum.Enum):
    """Where in a JSON value a word stands, to tell white space that does not count."""

    RAW = enum.auto()
    """The word is no value: everything counts."""
    BETWEEN = enum.auto()
    STRING = enum.auto()
    ESCAPE = enum.auto()


class Partial(NamedTuple):
    """The part read so far of a word, begun with the push of stack `node` on `parent`."""

    node: int
    parent: int
    text: bytes
    reading: Reading

    def extended(self, text: bytes) -> Partial:
        """The part after more bytes."""
        if not text:
            return self
        if self.reading is Reading.RAW:
            return self._replace(text=self.text + text)
        counted, reading = _without_space(text, self.reading)
        return self._replace(text=self.text + counted, reading=reading)


@dataclass(frozen=True, slots=True, kw_only=True)
class WordMemory:
    """The words read above each open stack.

    Attributes:
        frames: (stack node, words read above it), outermost first; only stacks with words.
        partials: the words being read, one inside the other, the innermost last.
    """

    frames: tuple[tuple[int, frozenset[bytes]], ...] = ()
    partials: tuple[Partial, ...] = ()

    @property
    def weight(self) -> int:
        """How large this is: a word counts 1, and so do 16 bytes of those being read."""
        if not self.frames and not self.partials:
            return 0
        read = sum(len(partial.text) for partial in self.partials)
        return sum(len(words) for _, words in self.frames) + read // 16

    def words_above(self, node: int) -> frozenset[bytes]:
        """The words read above a stack node."""
        for frame, words in reversed(self.frames):
            if frame == node:
                return words
        return frozenset()

    def rivals(self, partial: Partial) -> list[bytes]:
        """The words that ``partial`` may still become again."""
        return [word for word in self.words_above(partial.parent) if word.startswith(partial.text)]

    def after(self, text: bytes, events: list[Event]) -> WordMemory | None:
        """The memory after ``text``, during which ``events`` came; None where a word came again."""
        if self is EMPTY_MEMORY and all(event.kind is Happening.POPPED for event in events):
            return self
        frames = list(self.frames)
        partials = list(self.partials)
        done = 0
        for event in events:
            upto = event.position + (event.kind is Happening.PUSHED and not event.is_value)
            partials = [partial.extended(text[done:upto]) for partial in partials]
            done = upto
            if event.kind is Happening.PUSHED:
                reading = Reading.BETWEEN if event.is_value else Reading.RAW
                partials.append(Partial(event.node, event.parent, b"", reading))
            elif event.kind is Happening.REMEMBERED:
                if not _remember(frames, event.parent, partials.pop().text):
                    return None
            else:
                if partials and partials[-1].node == event.node:
                    partials.pop()
                while frames and frames[-1][0] == event.node:
                    frames.pop()
        if not frames and not partials:
            return EMPTY_MEMORY
        return WordMemory(frames=tuple(frames), partials=tuple(partial.extended(text[done:]) for partial in partials))


def _remember(frames: list[tuple[int, frozenset[bytes]]], node: int, word: bytes) -> bool:
    """Add a word to a stack's; False where it is there already."""
    if frames and frames[-1][0] == node:
        if word in frames[-1][1]:
            return False
        frames[-1] = (node, frames[-1][1] | {word})
    else:
        frames.append((node, frozenset((word,))))
    return True


def _without_space(text: bytes, reading: Reading) -> tuple[bytes, Reading]:
    counted = bytearray()
    for byte in text:
        if reading is Reading.STRING:
            if byte == b'"'[0]:
                reading = Reading.BETWEEN
            elif byte == b"\\"[0]:
                reading = Reading.ESCAPE
        elif reading is Reading.ESCAPE:
            reading = Reading.STRING
        elif byte in b" \t\r\n":
            continue
        elif byte == b'"'[0]:
            reading = Reading.STRING
        counted.append(byte)
    return bytes(counted), reading


EMPTY_MEMORY = WordMemory()
