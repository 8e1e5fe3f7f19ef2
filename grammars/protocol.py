"""What the engine knows of a constraint: a shared immutable `Grammar` and one `Matcher` per sample.

Invariant: a mask row is never empty, and a token that a mask allows can always be advanced over, so that walking masks
never ends in a dead end.
"""

from __future__ import annotations

from typing import Protocol

from decoding.masks import MaskRow

MAX_BRANCHES = 16
"""More alternatives than this are not few."""


class Matcher(Protocol):
    """The constraint's state along one sample. Errors are sticky: a failed matcher fails its own request only."""

    @property
    def is_accepting(self) -> bool:
        """The text so far is complete (end-of-sequence is legal here)."""
        ...

    @property
    def is_finished(self) -> bool:
        """An end-of-sequence token was advanced over; nothing is legal any more."""
        ...

    def mask(self) -> MaskRow:
        """The legal next tokens, end-of-sequence ids included where `is_accepting`. Shared and immutable.

        Raises GrammarStateError where the bound of work per mask is exhausted, or after a former error.
        """
        ...

    def only_end(self) -> bool:
        """True where nothing but an end-of-sequence token is legal."""
        ...

    def advance(self, token: int) -> None:
        """Commit to ``token``. Raises GrammarStateError where it is illegal."""
        ...

    def rollback(self, count: int) -> None:
        """Take back the last ``count`` advances."""
        ...

    def fork(self) -> Matcher:
        """An independent matcher in the same state, without the history before it."""
        ...

    def forced(self, limit: int) -> bytes:
        """The bytes, at most ``limit``, that every completion starts with from here."""
        ...

    def branches(self, limit: int) -> tuple[bytes, ...]:
        """The few texts that the next choice leaves, each at most ``limit`` bytes, ascending.

        Every completion starts with exactly one of them, unless it ends where they part. Each is the text forced from
        here, a byte that may come next, and what is forced after it, up to the next choice, a possible end, or
        ``limit``. They start with different bytes behind the forced text; a single one is all that may come.

        Empty where no text may come, where more than `MAX_BRANCHES` may, and where telling takes too much work, so that
        nothing follows from an empty answer. Costs at most a few masks and leaves the matcher as it was, its bounds of
        work included.
        """
        ...


class Grammar(Protocol):
    """A compiled constraint: immutable, picklable, shared by every request with the same `key`."""

    @property
    def key(self) -> str:
        """Hash of normalised constraint text, options and vocabulary."""
        ...

    def matcher(self) -> Matcher:
        """A matcher at the start of the text."""
        ...

    def finishing(self, limit: int) -> Matcher:
        """A matcher at the start of the text whose masks lead to its end within ``limit`` tokens.

        After at most so many the text is complete; an end-of-sequence token needs no place of its own. Raises
        InvalidRequestError where the limit cannot hold a text, UnsupportedConstraintError where the grammar does not
        tell how long its texts must be.
        """
        ...
