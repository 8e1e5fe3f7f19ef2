"""Words read so far that must not come again: the open keys of the objects that are open.

Which keys an object already has is no matter of the shared automaton's state (there are too many possibilities), so
every sample carries it along. Invariant: a memory never changes; `after` makes another one.
"""

from __future__ import annotations

from dataclasses import dataclass

from grammars.matching.walk import PUSHED, REMEMBERED

Event = list[int]
"""As `walk.EVENT_FIELDS` says."""


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

    def after(self, text: bytes, events: list[Event], interned: dict[int, int]) -> WordMemory | None:
        """The memory after ``text``, during which ``events`` came; None where a word came again.

        ``interned`` renames stack nodes that were made on the way.
        """
        if not events:
            if self.partial is None:
                return self
            return self._with(self.frames, self.partial + text, self.partial_node, self.partial_parent)
        frames = list(self.frames)
        prefix, begin = self.partial, 0
        node, parent = self.partial_node, self.partial_parent
        for kind, event_node, event_parent, position in events:
            if kind == PUSHED:
                prefix, begin, node, parent = b"", position + 1, event_node, event_parent
            elif kind == REMEMBERED:
                assert prefix is not None
                word = prefix + text[begin:position]
                if not _remember(frames, event_parent, word):
                    return None
                prefix = None
            else:
                if event_node == node:
                    prefix = None
                while frames and frames[-1][0] == event_node:
                    frames.pop()
        renamed = tuple((interned.get(frame, frame), words) for frame, words in frames)
        if prefix is None:
            return WordMemory(frames=renamed) if renamed else EMPTY_MEMORY
        return self._with(renamed, prefix + text[begin:], interned.get(node, node), interned.get(parent, parent))

    @staticmethod
    def _with(frames: tuple[tuple[int, frozenset[bytes]], ...], partial: bytes, node: int, parent: int) -> WordMemory:
        return WordMemory(frames=frames, partial=partial, partial_node=node, partial_parent=parent)


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
