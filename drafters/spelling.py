"""How the tokenizer spells a text that follows other text.

The text before matters, because tokens can reach over the border, and so does what comes after. Invariant: the bytes of
a spelling are those of the text that was asked for.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

REMEMBERED = 4096
"""Spellings that are kept, the least recently used of them first to go. A schema's texts come again and again."""


class Tokenizer(Protocol):
    """The model's own tokenizer."""

    def encode(self, text: str) -> Sequence[int]:
        """Ids of a text, without special tokens around it."""
        ...


class Speller:
    """Spellings in one vocabulary."""

    def __init__(self, tokenizer: Tokenizer, tokens: Sequence[bytes]) -> None:
        """``tokens[i]`` are the bytes that token i adds to a text; none for special tokens."""
        self._tokenizer = tokenizer
        self._tokens = tokens
        self._ids = {token: index for index, token in reversed(list(enumerate(tokens))) if token}
        self._longest = max(map(len, self._ids), default=0)
        self._known: OrderedDict[tuple[bytes, bytes], tuple[int, ...]] = OrderedDict()

    def bytes_before(self, tokens: Sequence[int]) -> bytes:
        """The text that the last of ``tokens`` spell, back to a special token."""
        pieces: list[bytes] = []
        for token in reversed(tokens):
            piece = self._tokens[token] if token < len(self._tokens) else b""
            if not piece:
                break
            pieces.append(piece)
        return b"".join(reversed(pieces))

    def spell(self, before: bytes, text: bytes) -> tuple[int, ...]:
        """Tokens of ``text`` where it follows ``before``; none where the tokenizer does not spell just these bytes.

        A character that ``text`` only begins is left out. Where the tokenizer would have a token reach over the border,
        which the tokens before rule out, the text is spelled alone.
        """
        key = before, text
        spelling = self._known.pop(key, None)
        if spelling is None:
            whole = _characters(text)
            spelling = self._ending_in(_characters(before + whole), whole) or self._ending_in(whole, whole)
            if len(self._known) >= REMEMBERED:
                self._known.popitem(last=False)
        self._known[key] = spelling
        return spelling

    def longest(self, text: bytes) -> tuple[int, ...]:
        """The longest token that ``text`` begins with, then the longest again, and so on; as far as tokens go."""
        run: list[int] = []
        start = 0
        while start < len(text):
            ends = range(min(len(text), start + self._longest), start, -1)
            end = next((end for end in ends if text[start:end] in self._ids), None)
            if end is None:
                break
            run.append(self._ids[text[start:end]])
            start = end
        return tuple(run)

    def _ending_in(self, context: bytes, text: bytes) -> tuple[int, ...]:
        """The last tokens of ``context``'s spelling, where they are those of ``text``; else none."""
        ids = self._tokenizer.encode(context.decode(errors="replace")) if text else ()
        missing, start = len(text), len(ids)
        while missing > 0 and start > 0:
            start -= 1
            missing -= len(self._tokens[ids[start]])
        tail = tuple(ids[start:])
        return tail if b"".join(self._tokens[token] for token in tail) == text else ()


def _characters(data: bytes) -> bytes:
    """Without the parts of characters at both ends."""
    start = next((index for index, byte in enumerate(data[:3]) if not 0x80 <= byte < 0xC0), min(3, len(data)))
    for cut in range(min(4, len(data) - start)):
        byte = data[-1 - cut]
        if byte < 0x80:
            break
        if byte >= 0xC0:  # the last character's first byte
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[start : len(data) - 1 - cut] if needed > cut + 1 else data[start:]
    return data[start:]
