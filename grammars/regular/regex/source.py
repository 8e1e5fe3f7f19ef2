"""The text of a pattern and the place in it.

Invariant: every complaint about a pattern tells the position of what is wrong.
"""

from __future__ import annotations

from typing import Final, NoReturn

from decoding.errors import ConstraintError, UnsupportedConstraintError

DIGITS: Final = "0123456789"
OCTAL_DIGITS: Final = "01234567"
HEX_DIGITS: Final = "0123456789abcdefABCDEF"


class Source:
    """A cursor over a pattern."""

    def __init__(self, text: str, field: str) -> None:
        self.text = text
        self.position = 0
        self._field = field

    @property
    def at_end(self) -> bool:
        """Nothing is left."""
        return self.position >= len(self.text)

    def peek(self, count: int = 1) -> str:
        """The next characters, fewer at the end."""
        return self.text[self.position : self.position + count]

    def take(self) -> str:
        """The next character; an error at the end."""
        if self.at_end:
            self.fail("the pattern ends too early")
        self.position += 1
        return self.text[self.position - 1]

    def skip(self, text: str) -> bool:
        """Pass over a text where it is next."""
        found = self.text.startswith(text, self.position)
        if found:
            self.position += len(text)
        return found

    def run(self, allowed: str, limit: int) -> str:
        """The next characters, at most ``limit``, as long as they are among the allowed ones."""
        start = self.position
        while self.position < min(len(self.text), start + limit) and self.text[self.position] in allowed:
            self.position += 1
        return self.text[start : self.position]

    def until(self, end: str) -> str:
        """The characters before ``end``, which is passed over, too."""
        stop = self.text.find(end, self.position)
        if stop < 0:
            self.fail(f"{end!r} is missing")
        found = self.text[self.position : stop]
        self.position = stop + len(end)
        return found

    def fail(self, message: str) -> NoReturn:
        """Refuse the pattern as malformed."""
        raise ConstraintError(self._field, f"{message} at position {self.position} of the pattern")

    def unsupported(self, message: str) -> NoReturn:
        """Refuse what is well formed, but no regular language."""
        raise UnsupportedConstraintError(self._field, f"{message} at position {self.position} of the pattern")
