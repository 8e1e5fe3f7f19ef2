r"""Markers as the bytes that automata read, special tokens among them.

A special token adds no text, so it has no bytes of its own. Automata read it as 0xFF, which no UTF-8 text holds, and
three bytes of its id: the token trie spells it the same way (`grammars.matching.trie`). Tokenizers cut special tokens
out of a text before anything else, and so do we: a marker is plain text with special tokens wherever one is written.

    </think>\n    ──►    FF id id id 0A        where </think> is a special token

Invariant: 0xFF stands in a marker only as the first byte of a special token.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from decoding.errors import ConstraintError
from grammars.characters import is_within
from grammars.regular.charset import ANY, CharSet
from grammars.vocabulary import SPECIAL_MARK, Vocabulary, special_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """A begin, an end, a trigger or a separator.

    Attributes:
        text: as the caller wrote it.
        code: as automata read it.
        specials: the ids of the special tokens in it.
    """

    text: str
    code: bytes
    specials: tuple[int, ...]

    @property
    def head(self) -> bytes:
        """What comes before the first special token."""
        return self.code.partition(SPECIAL_MARK)[0]

    @property
    def rest(self) -> bytes:
        """From the first special token on."""
        return self.code[len(self.head) :]

    @property
    def opening(self) -> bytes:
        """Up to the end of the first special token; all of it where there is none."""
        size = len(self.head) + len(special_bytes(0)) if self.specials else len(self.code)
        return self.code[:size]


class MarkerReader:
    """Markers over one vocabulary."""

    def __init__(self, vocabulary: Vocabulary, characters: CharSet = ANY) -> None:
        """``characters``: those that the vocabulary can write."""
        self._characters = characters
        self._ids = {text: token for token, text in vocabulary.special_text}
        self._texts = dict(vocabulary.special_text)
        self._eos = frozenset(vocabulary.eos_ids)
        longest_first = sorted(self._ids, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def read(self, field: str, text: str) -> Marker:
        """Raises ConstraintError where the marker holds an end-of-sequence token, or what the model cannot write."""
        code, specials, done = b"", [], 0
        for match in self._pattern.finditer(text):
            token = self._ids[match[0]]
            if token in self._eos:
                raise ConstraintError(field, f"holds {match[0]}, which ends the model's answer; use another marker")
            code += self._plain(field, text[done : match.start()]) + special_bytes(token)
            specials.append(token)
            done = match.end()
        return Marker(text=text, code=code + self._plain(field, text[done:]), specials=tuple(specials))

    def _plain(self, field: str, text: str) -> bytes:
        if not is_within(text, self._characters):
            missing = next(character for character in text if ord(character) not in self._characters)
            problem = f"holds {missing!r}, for which the model's vocabulary has no token; use another marker"
            raise ConstraintError(field, problem)
        return text.encode()

    def spelled(self, code: bytes) -> bytes:
        """What a piece of a marker looks like, its special tokens written out."""
        text, size = b"", len(special_bytes(0))
        while code:
            head, mark, _ = code.partition(SPECIAL_MARK)
            text += head
            if mark:
                token = int.from_bytes(code[len(head) + 1 : len(head) + size], "big")
                text += self._texts[token].encode()
            code = code[len(head) + size :]
        return text
