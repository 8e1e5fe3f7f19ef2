r"""Terms inside a JSON string: a language of texts seen through the spellings of its characters (RFC 8259, section 7).

A JSON term is a pair of a text term and a place in a spelling:

    BODY   between two characters                 "  \  raw
    ESCAPE after a backslash                      "  \  /  b  f  n  r  t  u
    START  after \u;  D after \ud                 the digits that follow decide between one unit and a surrogate pair
    HEX    1 to 3 hexadecimal digits to go        a block of 16^k code points
    PAIR   \ud, then [89ab] X X \ u d [c-f] X X   a block of the code points above U+FFFF

Each digit narrows a block of code points that are still possible. Where all of a block leads to one text term the block
is forgotten, so that the states are as few as the text allows. Invariant: a half of a surrogate pair is always followed
by the other half.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from grammars.regular.alphabet import Alphabet
from grammars.regular.charset import ANY, CharSet
from grammars.regular.kinds import EPSILON
from grammars.regular.terms import Terms

Arcs = tuple[tuple[int, int], ...]
Digit = tuple[CharSet, int]

BODY: Final = 0
ESCAPE: Final = 1
START: Final = 2
D: Final = 3
HEX_3: Final = 4
HEX_2: Final = 5
HEX_1: Final = 6
PAIR_HIGH_2: Final = 7
PAIR_HIGH_1: Final = 8
PAIR_BACKSLASH: Final = 9
PAIR_U: Final = 10
PAIR_D: Final = 11
PAIR_LOW: Final = 12

ANY_SPELLING: Final = 0
CANONICAL: Final = 1

_CONTROLS: Final = CharSet.from_ranges([(0, 0x1F)])
_QUOTE: Final = CharSet.of('"')
_BACKSLASH: Final = CharSet.of("\\")
_U: Final = CharSet.of("u")
_RAW: Final = ANY - _CONTROLS - _QUOTE - _BACKSLASH
_SHORT: Final = {letter: CharSet.of(meant) for letter, meant in zip('"\\/bfnrt', '"\\/\b\f\n\r\t', strict=True)}
_LETTERS: Final = {letter: CharSet.of(letter) for letter in _SHORT}
_SLASH: Final = _SHORT["/"]
_LONG: Final = _CONTROLS - CharSet.of("\b\f\n\r\t")
_DIGITS: Final = (
    tuple(CharSet.of(f"{digit:x}{digit:X}") for digit in range(16)),
    tuple(CharSet.of(f"{digit:x}") for digit in range(16)),
)

SYNTAX: Final = CharSet.of('"\\/bfnrtu0123456789abcdefABCDEF')
"""What escapes are written with: whoever restricts the characters of JSON texts must leave them."""
_CLASSES: Final = (
    _QUOTE,
    _BACKSLASH,
    _U,
    _CONTROLS,
    *_SHORT.values(),
    *_LETTERS.values(),
    *_DIGITS[0],
    *_DIGITS[1],
)


def classes(characters: CharSet) -> Iterable[CharSet]:
    """What an alphabet must tell apart where ``characters`` may stand raw."""
    return (*_CLASSES, _RAW & characters, _long(characters))


def _long(characters: CharSet) -> CharSet:
    r"""What the canonical spelling writes as ``\u`` and digits."""
    return _LONG | (_RAW - characters)


_BLOCK: Final = {
    HEX_3: (0x1000, 16, HEX_2),
    HEX_2: (0x100, 16, HEX_1),
    HEX_1: (0x10, 16, BODY),
    PAIR_HIGH_2: (0x40000, 16, PAIR_HIGH_1),
    PAIR_HIGH_1: (0x4000, 16, PAIR_BACKSLASH),
    PAIR_BACKSLASH: (0x400, 1, PAIR_U),
    PAIR_U: (0x400, 1, PAIR_D),
    PAIR_D: (0x400, 1, PAIR_LOW),
    PAIR_LOW: (0x400, 4, HEX_2),
}
"""Place: size of its block, into how many parts the next symbol divides it, and the place that follows."""


def body(terms: Terms, spelling: int, text: int) -> int:
    """The term between two characters; the closing quote is still to come."""
    return terms.json((BODY, spelling, text), shortest=terms.shortest[text] + 1, sure=terms.sure[text])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Guards:
    """The characters of JSON's syntax in one alphabet."""

    quote: int
    backslash: int
    u: int
    raw: int
    long: int
    short: tuple[tuple[tuple[int, int], ...], ...]
    """For each spelling: the letter after a backslash, and the character that it stands for."""
    digits: tuple[tuple[int, ...], ...]
    """For each spelling: the sixteen hexadecimal digits."""

    @staticmethod
    def of(alphabet: Alphabet) -> _Guards:
        guard = alphabet.guard
        short = tuple((guard(_LETTERS[letter]), guard(meant)) for letter, meant in _SHORT.items())
        slash = guard(_SLASH)
        return _Guards(
            quote=guard(_QUOTE),
            backslash=guard(_BACKSLASH),
            u=guard(_U),
            raw=guard(_RAW & alphabet.characters),
            long=guard(_long(alphabet.characters)),
            short=(short, tuple(pair for pair in short if pair[1] != slash)),
            digits=tuple(tuple(map(guard, digits)) for digits in _DIGITS),
        )


class JsonEscapes:
    """Makes JSON terms of one table and derives them; ``step`` derives text terms."""

    def __init__(self, terms: Terms, step: Callable[[int], Arcs]) -> None:
        self._terms = terms
        self._step = step

    @cached_property
    def _guards(self) -> _Guards:
        return _Guards.of(self._terms.alphabet)

    def arcs(self, term: int) -> Arcs:
        """The arcs of a JSON term."""
        args = self._terms.args[term]
        by_place = {BODY: self._body, ESCAPE: self._escape, START: self._start, D: self._after_d}.get(args[0])
        return by_place(args[1], args[2]) if by_place else self._block(*args)

    def _body(self, spelling: int, text: int) -> Arcs:
        terms, guards = self._terms, self._guards
        arcs = self._step(text)
        found = [(g & guards.raw, body(terms, spelling, target)) for g, target in arcs if g & guards.raw]
        if terms.accepts(text):
            found.append((guards.quote, EPSILON))
        escaped = [target for g, target in arcs if spelling == ANY_SPELLING or g & ~guards.raw]
        if escaped:
            sure = any(terms.sure[target] for target in escaped)
            found.append((guards.backslash, terms.json((ESCAPE, spelling, text), shortest=2, sure=sure)))
        return tuple(found)

    def _escape(self, spelling: int, text: int) -> Arcs:
        terms, guards = self._terms, self._guards
        arcs = self._step(text)
        letters: dict[int, int] = {}
        for letter, meant in guards.short[spelling]:
            for g, target in arcs:
                if g & meant:
                    after = body(terms, spelling, target)
                    letters[after] = letters.get(after, 0) | letter
        found = [(g, target) for target, g in letters.items()]
        long = self._spelled_long(spelling, arcs)
        if long:
            sure = any(terms.sure[target] for _, target in long)
            found.append((guards.u, terms.json((START, spelling, text), shortest=5, sure=sure)))
        return tuple(found)

    def _spelled_long(self, spelling: int, arcs: Arcs) -> Arcs:
        if spelling == ANY_SPELLING:
            return arcs
        long = self._guards.long
        return tuple((g & long, target) for g, target in arcs if g & long)

    def _start(self, spelling: int, text: int) -> Arcs:
        arcs = self._spelled_long(spelling, self._step(text))
        found = self._narrowed(spelling, arcs, [(digit, HEX_3, digit << 12) for digit in range(16) if digit != 0xD])
        # Long ones are controls in the canonical spelling, unless some characters cannot stand raw.
        if spelling == ANY_SPELLING or (arcs and self._terms.alphabet.characters != ANY):
            found.append(
                (self._guards.digits[spelling][0xD], self._terms.json((D, spelling, text), shortest=4, sure=False))
            )
        return tuple(found)

    def _after_d(self, spelling: int, text: int) -> Arcs:
        parts = [(digit, HEX_2, 0xD000 + (digit << 8)) for digit in range(8)]
        parts += [(8 + i, PAIR_HIGH_2, 0x10000 + i * 0x40000) for i in range(4)]
        return tuple(self._narrowed(spelling, self._spelled_long(spelling, self._step(text)), parts))

    def _block(self, place: int, spelling: int, base: int, *pairs: int) -> Arcs:
        size, divisor, following = _BLOCK[place]
        digits = self._guards.digits[spelling]
        if divisor == 1:
            symbol = {PAIR_BACKSLASH: self._guards.backslash, PAIR_U: self._guards.u, PAIR_D: digits[0xD]}[place]
            return ((symbol, self._terms.json((following, spelling, base, *pairs), shortest=1, sure=False)),)
        first, part = (0 if divisor == 16 else 0xC), size // divisor
        parts = [(first + i, following, base + i * part) for i in range(divisor)]
        return tuple(self._narrowed(spelling, tuple(zip(pairs[::2], pairs[1::2], strict=True)), parts))

    def _narrowed(self, spelling: int, arcs: Arcs, parts: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
        """For (digit, place after it, base of the block then): the arcs to those places that a word can pass."""
        digits = self._guards.digits[spelling]
        everywhere = arcs[0][1] if arcs and arcs[0][0] == self._terms.alphabet.full else None
        guards: dict[int, int] = {}
        for digit, place, base in parts:
            if everywhere is not None:
                target: int | None = self._uniform(place, spelling, everywhere)
            else:
                target = self._place(place, spelling, base, arcs)
            if target is not None:
                guards[target] = guards.get(target, 0) | digits[digit]
        return [(g, target) for target, g in guards.items()]

    def _place(self, place: int, spelling: int, base: int, arcs: Arcs) -> int | None:
        """The term for a block, None where no arc has a character of it."""
        alphabet = self._terms.alphabet
        last = base + _BLOCK[place][0] - 1 if place != BODY else base
        inside = alphabet.within(base, last)
        left = [(g & inside, target) for g, target in arcs if g & inside]
        if not left:
            return None
        if len(left) == 1 and left[0][0] == inside:
            return self._uniform(place, spelling, left[0][1])
        args = (place, spelling, alphabet.alike(base, last), *(x for pair in left for x in pair))
        return self._terms.json(args, shortest=2, sure=False)

    def _uniform(self, place: int, spelling: int, target: int) -> int:
        """The term for a block all of whose characters lead to one target."""
        terms = self._terms
        if place == BODY:
            return body(terms, spelling, target)
        return terms.json((place, spelling, 0, terms.alphabet.full, target), shortest=2, sure=terms.sure[target])
