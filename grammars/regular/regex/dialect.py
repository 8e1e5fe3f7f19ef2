"""What a dialect of regular expressions must say to the parser.

Invariant: a dialect holds no state of a parse.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from grammars.regular.charset import CharSet
from grammars.regular.expressions import Expression
from grammars.regular.regex.source import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """The flags in force at a place of a pattern, by their letters."""

    i: bool = False
    m: bool = False
    s: bool = False
    x: bool = False
    a: bool = False
    u: bool = False

    def changed(self, *, on: str = "", off: str = "") -> Flags:
        """With some flags set and others cleared."""
        return replace(self, **dict.fromkeys(on, True), **dict.fromkeys(off, False))


Item = CharSet | Expression
"""What an escape stands for: characters, or an assertion."""


class Escape(Protocol):
    """Reads what follows a backslash."""

    def __call__(self, source: Source, flags: Flags, *, in_class: bool) -> Item:
        """Always characters where it stands in a class."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The differences between dialects."""

    name: str
    letters: str
    """The flags that a caller or an inline group may set."""
    line_terminators: CharSet
    """What ``.`` leaves out without the s flag, and where ``^`` and ``$`` hold with the m flag."""
    end: Expression
    """``$`` without the m flag."""
    escape: Escape
    word: Callable[[Flags], CharSet]
    """Word characters, for word boundaries."""
    fold: Callable[[CharSet, Flags], CharSet]
    """Closes a set under equality of case."""
    empty_class: bool
    """``[]`` is the empty class (else the bracket right after ``[`` is a member)."""
    class_in_range: bool
    r"""``[\w-.]`` is three members (else an error)."""
    possessive: bool
    """A plus sign after a quantifier makes it possessive."""
    open_lower_count: bool
    """``{,3}`` is a quantifier (else four characters)."""
