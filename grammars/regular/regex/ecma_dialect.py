r"""The syntax of ECMA-262 regular expressions by code points (the u flag), with what Annex B of the standard tolerates
and people write: identity escapes of any character, lone braces and brackets, classes as ends of a range.

Invariant: a pattern that is legal under the u flag has the language that it has there.
"""

from __future__ import annotations

import string
from typing import Final

from grammars.regular.charset import CharSet
from grammars.regular.regex import assertions
from grammars.regular.regex.dialect import Dialect, Flags, Item
from grammars.regular.regex.python_dialect import unicode_property
from grammars.regular.regex.source import DIGITS, HEX_DIGITS, OCTAL_DIGITS, Source
from grammars.regular.regex.unicode_sets import fold_ecma

LINE_TERMINATORS: Final = CharSet.of("\n\r\u2028\u2029")
_DIGIT: Final = CharSet.span("0", "9")
_WORD: Final = CharSet.of("_") | _DIGIT | CharSet.span("a", "z") | CharSet.span("A", "Z")
_SPACE: Final = (
    CharSet.of("\t\v\f\ufeff \xa0\u1680\u202f\u205f\u3000") | CharSet.span("\u2000", "\u200a") | LINE_TERMINATORS
)
_SETS: Final = {"d": _DIGIT, "w": _WORD, "s": _SPACE, "D": ~_DIGIT, "W": ~_WORD, "S": ~_SPACE} | {
    letter: CharSet.of(meant) for letter, meant in zip("fnrtv", "\f\n\r\t\v", strict=True)
}


def _escape(source: Source, flags: Flags, *, in_class: bool) -> Item:
    letter = source.take()
    if letter in _SETS:
        return _SETS[letter]
    if letter in "bB" and not in_class:
        return assertions.word_boundary(_word(flags), negative=letter == "B")
    if letter in DIGITS:
        return _number(source, letter, in_class=in_class)
    if letter in "pP" and source.peek() == "{":
        return unicode_property(source, letter)
    if letter == "k" and source.peek() == "<" and not in_class:
        source.unsupported("back-reference \\k: back-references are not regular")
    by_code = {"x": _hexadecimal, "u": _hexadecimal, "c": _control}.get(letter)
    return by_code(source, letter) if by_code else CharSet.of("\b" if letter == "b" else letter)


def _number(source: Source, first: str, *, in_class: bool) -> CharSet:
    r"""``\0``, a back-reference where there are as many groups, else an octal escape or the digit itself (Annex B)."""
    start = source.position
    digits = first + source.run(DIGITS, 9)
    if not in_class and first != "0" and int(digits) <= _count_groups(source.text):
        source.unsupported(f"back-reference \\{digits}: back-references are not regular")
    source.position = start
    if first not in OCTAL_DIGITS:
        return CharSet.of(first)
    octal = first + source.run(OCTAL_DIGITS, 2 if first in "0123" else 1)
    return CharSet.of(chr(int(octal, 8)))


def _count_groups(text: str) -> int:
    count = position = 0
    in_class = False
    while position < len(text):
        character = text[position]
        if character == "\\":
            position += 1
        elif character in "[]":
            in_class = character == "["
        elif character == "(" and not in_class:
            following = text[position + 1 : position + 4]
            count += following[:1] != "?" or (following[:2] == "?<" and following[2:] not in ("=", "!"))
        position += 1
    return count


def _hexadecimal(source: Source, letter: str) -> CharSet:
    start = source.position
    if letter == "u" and source.skip("{"):
        digits = source.run(HEX_DIGITS, 8)
        if digits and source.skip("}"):
            if int(digits, 16) > 0x10FFFF:
                source.fail("a code point above U+10FFFF")
            return _scalar(source, int(digits, 16))
        source.position = start
    count = 2 if letter == "x" else 4
    digits = source.run(HEX_DIGITS, count)
    if len(digits) != count:
        source.position = start
        return CharSet.of(letter)
    unit = int(digits, 16)
    if 0xD800 <= unit < 0xDC00 and source.peek(2) == "\\u":
        after_high = source.position
        source.position += 2
        low = source.run(HEX_DIGITS, 4)
        if len(low) == 4 and 0xDC00 <= int(low, 16) < 0xE000:
            return _scalar(source, 0x10000 + ((unit - 0xD800) << 10) + int(low, 16) - 0xDC00)
        source.position = after_high
    return _scalar(source, unit)


def _scalar(source: Source, code_point: int) -> CharSet:
    if 0xD800 <= code_point < 0xE000:
        source.unsupported("half a surrogate pair is no character of a text")
    return CharSet.of(chr(code_point))


def _control(source: Source, _letter: str) -> CharSet:
    if source.peek() and source.peek() in string.ascii_letters:
        return CharSet.of(chr(ord(source.take()) % 32))
    source.position -= 1  # the c is read again: a lone \c is a backslash and a c
    return CharSet.of("\\")


def _word(flags: Flags) -> CharSet:
    return fold_ecma(_WORD) if flags.i else _WORD


ECMA: Final = Dialect(
    name="ecma",
    letters="imsu",
    line_terminators=LINE_TERMINATORS,
    end=assertions.END,
    escape=_escape,
    word=_word,
    fold=lambda charset, _flags: fold_ecma(charset),
    empty_class=True,
    class_in_range=True,
    possessive=False,
    open_lower_count=False,
)
