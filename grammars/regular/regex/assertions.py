r"""Anchors and word boundaries in terms of look-around.

Invariant: `START` and `END` are single objects, so that an anchor at the edge of a pattern is known by identity and
costs nothing.
"""

from __future__ import annotations

from typing import Final

from grammars.regular.charset import CharSet
from grammars.regular.expressions import (
    ANY_CHAR,
    Expression,
    chars,
    concat,
    look_ahead,
    look_behind,
    union,
)

START: Final = look_behind(ANY_CHAR, negative=True)
END: Final = look_ahead(ANY_CHAR, negative=True)
_NEWLINE: Final = CharSet.of("\n")
END_OR_LAST_NEWLINE: Final = look_ahead(
    union(chars(~_NEWLINE), concat(chars(_NEWLINE), ANY_CHAR)),
    negative=True,
)
r"""Python's ``$`` without MULTILINE: at the end, and before a line feed that is the last character."""


def line_start(terminators: CharSet) -> Expression:
    """``^`` with the m flag."""
    return look_behind(chars(~terminators), negative=True)


def line_end(terminators: CharSet) -> Expression:
    """``$`` with the m flag."""
    return look_ahead(chars(~terminators), negative=True)


def word_boundary(word: CharSet, *, negative: bool) -> Expression:
    r"""``\b``, or ``\B`` where negative, with the dialect's idea of a word character."""
    inside = chars(word)
    after_word, after_other = look_behind(inside), look_behind(inside, negative=True)
    before_word, before_other = look_ahead(inside), look_ahead(inside, negative=True)
    if negative:
        return union(concat(after_word, before_word), concat(after_other, before_other))
    return union(concat(after_word, before_other), concat(after_other, before_word))
