"""Which characters a vocabulary can write, so that whatever bytes can complete, tokens can complete too.

A mask may end in the middle of a character, so a character counts as written only where each of its bytes is a token by
itself: from every place inside it some token then goes on. Where no token ever ends inside a character, one that is a
token as a whole counts, too. Bytes that come in longer tokens alone (or in none) make no character: those tokens are
never legal. Invariant: a language over these characters that is not empty can be written token by token, and after any
token that leads to a live place some token is legal.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from grammars.regular.charset import ANY, MAX_CODE_POINT, CharSet
from grammars.vocabulary import Vocabulary

_SINGLES = 256


def writable(vocabulary: Vocabulary) -> CharSet:
    """The characters that the tokens of ``vocabulary`` can write."""
    single = np.zeros(_SINGLES, dtype=np.bool_)
    single[[token[0] for token in vocabulary.tokens if len(token) == 1]] = True
    if single[:0xC0].all() and single[0xC2:0xF5].all():
        return ANY
    found = _from_bytes(single)
    texts = [_decoded(token) for token in vocabulary.tokens]
    if None not in texts:
        found |= CharSet.from_ranges((ord(text), ord(text)) for text in texts if text is not None and len(text) == 1)
    return found


def is_within(text: str, characters: CharSet) -> bool:
    """Whether all characters of a text are among ``characters``."""
    return characters == ANY or all(ord(character) in characters for character in text)


def _decoded(token: bytes) -> str | None:
    try:
        return token.decode()
    except UnicodeDecodeError:
        return None


def _from_bytes(single: npt.NDArray[np.bool_]) -> CharSet:
    """The characters of which every UTF-8 byte (RFC 3629) is among ``single``, bool [256]."""
    points = np.arange(MAX_CODE_POINT + 1)
    low = single[0x80 | points & 0x3F]
    middle = single[0x80 | points >> 6 & 0x3F]
    high = single[0x80 | points >> 12 & 0x3F]
    ok = np.select(
        [points < 0x80, points < 0x800, points < 0x10000],
        [
            single[points & 0x7F],
            single[0xC0 | points >> 6 & 0x1F] & low,
            single[0xE0 | points >> 12 & 0xF] & middle & low,
        ],
        single[0xF0 | points >> 18 & 0x7] & high & middle & low,
    )
    edges = np.flatnonzero(np.diff(ok.astype(np.int8), prepend=0, append=0))
    return CharSet.from_ranges((int(first), int(end) - 1) for first, end in edges.reshape(-1, 2))
