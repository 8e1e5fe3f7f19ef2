"""The protocol by which the engine, which never sees text, learns that a stop string is complete.

Invariant: a checker's answer depends only on the tokens fed to it.
"""

from __future__ import annotations

from typing import Protocol


class StopChecker(Protocol):
    """Watches the committed tokens of one sample."""

    def feed(self, token: int) -> bool:
        """Take the next committed token; True where a stop string is now complete."""
        ...

    def fork(self) -> StopChecker:
        """An independent copy in the same state."""
        ...
