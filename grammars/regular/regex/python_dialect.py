r"""The syntax of Python's `re` (3.11 and later), with ``\p{...}`` beside it.

Invariant: a pattern that `re` compiles and this accepts has the language of `re.fullmatch`, except that ``\B`` holds in
the empty text, as it does since Python 3.14.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
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
_LITERALS: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def _class(letter: str, flags: Flags) -> CharSet:
    found = _ASCII_CLASSES[letter.lower()] if flags.a else python_class(letter.lower())
    return found if letter.islower() else ~found


def _escape(source: Source, flags: Flags, *, in_class: bool) -> Item:
    letter = source.take()
    if letter in _LITERALS:
        return CharSet.of(_LITERALS[letter])
    if letter in "dDwWsS":
        return _class(letter, flags)
    if letter in "AZbB" and not in_class:
        return _assertion(letter, flags)
    if letter in DIGITS:
        return _number(source, letter, in_class=in_class)
    if letter in _BY_CODE:
        return _BY_CODE[letter](source, letter)
    if letter.isascii() and letter.isalpha() and not (letter == "b" and in_class):
        source.fail(f"bad escape \\{letter}")
    return CharSet.of("\b" if letter == "b" else letter)


def _hexadecimal(source: Source, letter: str) -> CharSet:
    count = {"x": 2, "u": 4, "U": 8}[letter]
    digits = source.run(HEX_DIGITS, count)
    if len(digits) != count:
        source.fail(f"incomplete escape \\{letter}{digits}")
    return _character(source, int(digits, 16))


def _assertion(letter: str, flags: Flags) -> Item:
    if letter == "A":
        return assertions.START
    if letter == "Z":
        return assertions.END
    return assertions.word_boundary(_class("w", flags), negative=letter == "B")


def _number(source: Source, first: str, *, in_class: bool) -> CharSet:
    if first == "0":
        return CharSet.of(chr(int("0" + source.run(OCTAL_DIGITS, 2), 8)))
    digits = first + source.run(OCTAL_DIGITS, 2) if first in OCTAL_DIGITS else first
    is_octal = len(digits) == 3 or (in_class and first in OCTAL_DIGITS)
    if not is_octal and not in_class:
        source.unsupported(f"back-reference \\{digits}: back-references are not regular")
    if not is_octal:
        source.fail(f"bad escape \\{first}")
    if int(digits, 8) > 0o377:
        source.fail(f"octal escape \\{digits} is above 0o377")
    return CharSet.of(chr(int(digits, 8)))


def _named(source: Source, _letter: str) -> CharSet:
    if not source.skip("{"):
        source.fail("\\N needs a name in braces")
    name = source.until("}")
    try:
        character = unicodedata.lookup(name)
    except KeyError:
        source.fail(f"there is no character named {name!r}")
    return CharSet.of(character)


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


_BY_CODE: Final[dict[str, Callable[[Source, str], CharSet]]] = {
    "x": _hexadecimal,
    "u": _hexadecimal,
    "U": _hexadecimal,
    "N": _named,
    "p": unicode_property,
    "P": unicode_property,
}

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
