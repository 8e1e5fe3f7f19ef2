"""What a grammar says of the text to come, for drafters: forced text, and the few texts behind the next choice.

Invariant: it reads positions and makes no others' worse; where it does not tell, the answer is shorter, never wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from grammars.protocol import MAX_BRANCHES

PositionT = TypeVar("PositionT")


class Outlook(Protocol[PositionT]):
    """Where a text can go from a position."""

    def may_end(self, position: PositionT) -> bool:
        """Whether the text may end there."""
        ...

    def successors(self, position: PositionT, most: int) -> Sequence[tuple[int, PositionT]] | None:
        """The bytes that may come next, ascending, and the positions after them; None where they are too many.

        They may be too many where more than ``most`` bytes are live in the shared automaton, whatever a sample's memory
        forbids among them.
        """
        ...


def forced_from(outlook: Outlook[PositionT], position: PositionT, limit: int, most: int) -> tuple[bytes, PositionT]:
    """The bytes, at most ``limit``, that every completion starts with, and the position after them.

    ``most`` bounds the work at each byte, see `Outlook.successors`.
    """
    forced = bytearray()
    while len(forced) < limit and not outlook.may_end(position):
        live = outlook.successors(position, most)
        if live is None or len(live) != 1:
            break
        ((byte, position),) = live
        forced.append(byte)
    return bytes(forced), position


def branches_from(outlook: Outlook[PositionT], position: PositionT, limit: int) -> tuple[bytes, ...]:
    """See `grammars.protocol.Matcher.branches`."""
    prefix, position = forced_from(outlook, position, limit, MAX_BRANCHES)
    if len(prefix) == limit:
        return (prefix,) if prefix else ()
    live = outlook.successors(position, MAX_BRANCHES)
    if live is None:
        return ()
    if not live:
        return (prefix,) if prefix else ()
    left = limit - len(prefix) - 1
    return tuple(prefix + bytes((byte,)) + forced_from(outlook, after, left, MAX_BRANCHES)[0] for byte, after in live)
