"""Sets of code points by Unicode property, from the tables of the standard library.

Invariant: tables are computed once per process, at first use, and never change.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import cache
from itertools import groupby
from typing import Final

from grammars.regular.charset import ANY, CharSet

_SCANNED: Final = (range(0x40000), range(0xE0000, 0xE1000))
"""Where assigned characters are; the rest is unassigned, but for two planes of private use."""
_PRIVATE_PLANES: Final = ((0xF0000, 0xFFFFD), (0x100000, 0x10FFFD))

_LONG_NAMES: Final = {
    "letter": "L", "cased_letter": "LC", "uppercase_letter": "Lu", "lowercase_letter": "Ll", "titlecase_letter": "Lt",
    "modifier_letter": "Lm", "other_letter": "Lo", "mark": "M", "combining_mark": "M", "nonspacing_mark": "Mn",
    "spacing_mark": "Mc", "enclosing_mark": "Me", "number": "N", "decimal_number": "Nd", "digit": "Nd",
    "letter_number": "Nl", "other_number": "No", "punctuation": "P", "punct": "P", "connector_punctuation": "Pc",
    "dash_punctuation": "Pd", "open_punctuation": "Ps", "close_punctuation": "Pe", "initial_punctuation": "Pi",
    "final_punctuation": "Pf", "other_punctuation": "Po", "symbol": "S", "math_symbol": "Sm", "currency_symbol": "Sc",
    "modifier_symbol": "Sk", "other_symbol": "So", "separator": "Z", "space_separator": "Zs", "line_separator": "Zl",
    "paragraph_separator": "Zp", "other": "C", "control": "Cc", "cntrl": "Cc", "format": "Cf", "private_use": "Co",
    "unassigned": "Cn", "l&": "LC",
}  # fmt: skip
_WHITE_SPACE: Final = CharSet.of("\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000") | CharSet.span(
    "\u2000", "\u200a"
)


def property_set(name: str) -> CharSet | None:
    r"""The set of ``\p{name}``: a general category (short or long name, ``gc=`` or ``General_Category=`` before it) or
    one of Any, Assigned, ASCII, ASCII_Hex_Digit, Lowercase, Uppercase and White_Space (UTS 18). None for any other
    name.
    """
    key, _, value = name.rpartition("=")
    if key and _loose(key) not in ("gc", "general_category"):
        return None
    loose = _loose(value)
    if not key and loose in _BINARY:
        return _BINARY[loose]()
    short = _LONG_NAMES.get(loose) or {known.lower(): known for known in _categories()}.get(loose)
    return None if short is None else _categories()[short]


@cache
def python_class(letter: str) -> CharSet:
    r"""What ``\d``, ``\w`` or ``\s`` matches in `re` without the ASCII flag, asked of `re` itself."""
    found = []
    for scanned in _SCANNED:
        text = "".join(map(chr, scanned))
        spans = (match.span() for match in re.finditer(rf"\{letter}+", text))
        found += [(scanned.start + first, scanned.start + end - 1) for first, end in spans]
    return CharSet.from_ranges(found)


@cache
def _categories() -> dict[str, CharSet]:
    ranges: dict[str, list[tuple[int, int]]] = {"Co": list(_PRIVATE_PLANES), "Cs": []}
    for scanned in _SCANNED:
        position = scanned.start
        for category, run in groupby(map(unicodedata.category, map(chr, scanned))):
            end = position + sum(1 for _ in run)
            ranges.setdefault(category, []).append((position, end - 1))
            position = end
    sets = {category: CharSet.from_ranges(found) for category, found in ranges.items() if category != "Cn"}
    assigned = CharSet.from_ranges(r for found in sets.values() for r in found.ranges())
    sets["Cn"] = ~assigned
    for major in "LMNPSZC":
        members = [found for category, found in sets.items() if category[0] == major]
        sets[major] = CharSet.from_ranges(r for found in members for r in found.ranges())
    sets["LC"] = sets["Lu"] | sets["Ll"] | sets["Lt"]
    return sets


@cache
def _cased(test: Callable[[str], bool]) -> CharSet:
    return CharSet.from_ranges((c, c) for c in range(0x20000) if test(chr(c)))


_BINARY: Final = {
    "any": lambda: ANY,
    "assigned": lambda: ~_categories()["Cn"],
    "ascii": lambda: CharSet.from_ranges([(0, 127)]),
    "ascii_hex_digit": lambda: CharSet.of("0123456789abcdefABCDEF"),
    "lowercase": lambda: _cased(str.islower),
    "uppercase": lambda: _cased(str.isupper),
    "white_space": lambda: _WHITE_SPACE,
}


def fold_python(charset: CharSet) -> CharSet:
    """Every character that equals one of the set under `re.IGNORECASE`."""
    return _with_orbits(charset, _python_orbits())


def fold_ecma(charset: CharSet) -> CharSet:
    """Every character with the same simple case folding as one of the set (ECMA-262, Canonicalize with the u flag)."""
    return _with_orbits(charset, _ecma_orbits())


def fold_ascii(charset: CharSet) -> CharSet:
    """Every character that equals one of the set when the case of ASCII letters is ignored."""
    letters = {(c, c + 32) for c in range(ord("A"), ord("Z") + 1)}
    return _with_orbits(charset, {c: pair for pair in letters for c in pair})


def _with_orbits(charset: CharSet, orbits: dict[int, tuple[int, ...]]) -> CharSet:
    small = len(charset) < len(orbits)
    touched = (c for first, last in charset.ranges() for c in range(first, last + 1)) if small else orbits
    more = {c for cased in touched if cased in orbits for c in orbits[cased]} if small else set()
    if not small:
        more = {c for cased, orbit in orbits.items() if cased in charset for c in orbit}
    return CharSet.from_ranges([*charset.ranges(), *((c, c) for c in more)]) if more else charset


@cache
def _python_orbits() -> dict[int, tuple[int, ...]]:
    return _orbits(lambda c: _one(str.upper, _one(str.lower, c)))


@cache
def _ecma_orbits() -> dict[int, tuple[int, ...]]:
    return _orbits(lambda c: c if c in "İı" else _one(str.casefold, c))


def _orbits(key: Callable[[str], str]) -> dict[int, tuple[int, ...]]:
    groups: dict[str, list[int]] = {}
    for c in map(chr, range(0x20000)):
        if c.lower() != c or c.upper() != c or c.casefold() != c:
            groups.setdefault(key(c), []).append(ord(c))
    return {c: tuple(group) for group in groups.values() if len(group) > 1 for c in group}


def _one(change: Callable[[str], str], character: str) -> str:
    """A change of case as long as it gives one character (the simple mapping, for all but U+0130, whose lower case is
    i).
    """
    changed = change(character)
    return changed if len(changed) == 1 else "i" if character == "İ" else character


def _loose(name: str) -> str:
    return name.strip().lower().replace(" ", "_").replace("-", "_")
