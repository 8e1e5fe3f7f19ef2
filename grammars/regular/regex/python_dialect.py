r"""The syntax of Python's `re` (3.11 and later), with ``\p{...}`` beside it.

Invariant: a pattern that `re` compiles and this accepts has the language of `re.fullmatch`, except that ``\B`` holds in the
empty text, as it does since Python 3.14.
"""

from __future__ import annotations

import unicodedata
from typing import Final

from grammars.regular.charset import CharSet
from grammars.regular.regex import assertions
from grammars.regular.regex.dialect import Dialect, Flags, Item
from grammars.regular.regex.source import DIGITS, HEX_DIGITS, OCTAL_DIGITS, Source
from grammars.regular.regex.unicode_sets import fold_ascii, fold_python, property_set, python_class

_ASCII_CLASSES: Final = {
    "d": CharSet.span("0", "9"),
    "w": CharSet.of("_") | CharSet.span("0", "9") | CharSet.span("a", "z") | CharSet.span("A", "Z"),
    "s": CharSet.of(" \t\n\r\f\v"),
}
_CONTROLS: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def _class(letter: str, flags: Flags) -> CharSet:
    found = _ASCII_CLASSES[letter.lower()] if flags.a else python_class(letter.lower())
    return found if letter.islower() else ~found


def _escape(source: Source, flags: Flags, in_class: bool) -> Item:
    letter = source.take()
    if letter in "dDwWsS":
        return _class(letter, flags)
    if not in_class and letter in "AZbB":
        return _assertion(letter, flags)
    if letter in DIGITS:
        return _number(source, letter, in_class)
    if letter in "xuU":
        count = {"x": 2, "u": 4, "U": 8}[letter]
        digits = source.run(HEX_DIGITS, count)
        if len(digits) != count:
            source.fail(f"incomplete escape \\{letter}{digits}")
        return _character(source, int(digits, 16))
    if letter == "N":
        return _named(source)
    if letter in "pP":
        return unicode_property(source, letter)
    if letter in _CONTROLS:
        return CharSet.of(_CONTROLS[letter])
    if letter.isascii() and letter.isalpha():
        source.fail(f"bad escape \\{letter}")
    return CharSet.of(letter)


def _assertion(letter: str, flags: Flags) -> Item:
    if letter == "A":
        return assertions.START
    if letter == "Z":
        return assertions.END
    return assertions.word_boundary(_class("w", flags), negative=letter == "B")


def _number(source: Source, first: str, in_class: bool) -> CharSet:
    if first == "0":
        return CharSet.of(chr(int("0" + source.run(OCTAL_DIGITS, 2), 8)))
    digits = first + source.run(OCTAL_DIGITS, 2) if first in OCTAL_DIGITS else first
    if len(digits) == 3 or (in_class and first in OCTAL_DIGITS):
        if int(digits, 8) > 0o377:
            source.fail(f"octal escape \\{digits} is above 0o377")
        return CharSet.of(chr(int(digits, 8)))
    if in_class:
        source.fail(f"bad escape \\{first}")
    source.unsupported(f"back-reference \\{digits}: back-references are not regular")


def _named(source: Source) -> CharSet:
    if not source.skip("{"):
        source.fail("\\N needs a name in braces")
    name = source.until("}")
    try:
        return CharSet.of(unicodedata.lookup(name))
    except KeyError:
        source.fail(f"there is no character named {name!r}")


def _character(source: Source, code_point: int) -> CharSet:
    if code_point > 0x10FFFF:
        source.fail("a code point above U+10FFFF")
    return CharSet.from_ranges([(code_point, code_point)])


def unicode_property(source: Source, letter: str) -> CharSet:
    r"""The braces after ``\p`` or ``\P`` and what they name."""
    name = source.until("}") if source.skip("{") else source.take()
    found = property_set(name)
    if found is None:
        source.unsupported(f"the Unicode property {name!r} is not known (general categories are)")
    return found if letter == "p" else ~found


PYTHON: Final = Dialect(
    name="python",
    letters="aimsxu",
    line_terminators=CharSet.of("\n"),
    end=assertions.END_OR_LAST_NEWLINE,
    escape=_escape,
    word=lambda flags: _class("w", flags),
    fold=lambda charset, flags: fold_ascii(charset) if flags.a else fold_python(charset),
    empty_class=False,
    class_in_range=False,
    possessive=True,
    open_lower_count=True,
)
