"""A generated text taken apart again: its reasoning, its free text, its parts.

The text is what callers see: special tokens that a marker names are written out in it. Invariant: pieces joined with
their markers are the text; nothing is dropped or invented.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_JSON_PIECE = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)
_JSON_SCALAR = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|true|false|null|-?[0-9][0-9.eE+-]*', re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class TagLayout:
    """One kind of part: its markers as written, what it is called, and whether it holds JSON."""

    name: str
    begin: str
    end: str
    is_json: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Free text (`tag` is None), or the content of a part: its tag's index, and whether its end marker came."""

    text: str
    tag: int | None = None
    is_whole: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A text taken apart.

    Attributes:
        reasoning: without its markers; None where none was asked for.
        content: what comes after it.
        pieces: `content` in free text and parts, where there are tags.
    """

    reasoning: str | None
    content: str
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How a text is taken apart.

    Attributes:
        reasoning: its begin and end marker; None where none was asked for.
        tags: the kinds of parts.
        separator: what stands between parts that follow each other, and is no free text.
        has_parts: there are tags, or there were none to call.
        are_calls: the parts are calls of tools.
    """

    reasoning: tuple[str, str] | None = None
    tags: tuple[TagLayout, ...] = ()
    separator: str = ""
    has_parts: bool = False
    are_calls: bool = False
    _begin: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        begins = "|".join(f"({re.escape(tag.begin)})" for tag in self.tags) or r"(?!)"
        object.__setattr__(self, "_begin", re.compile(begins))

    def read(self, text: str) -> Reading:
        """Take a text apart, also one that was cut. Linear in its size."""
        reasoning, content = None, text
        if self.reasoning is not None:
            begin, end = self.reasoning
            inside, _, content = text.partition(end)
            reasoning = inside.removeprefix(begin)
        return Reading(
            reasoning=reasoning, content=content, pieces=tuple(self._pieces(content)) if self.has_parts else ()
        )

    def _pieces(self, text: str) -> list[Piece]:
        pieces: list[Piece] = []
        done = 0
        while (match := self._begin.search(text, done)) is not None:
            assert match.lastindex is not None
            index = match.lastindex - 1
            self._add_text(pieces, text[done : match.start()], is_between=bool(pieces))
            tag = self.tags[index]
            stop = _json_end(text, match.end()) if tag.is_json else text.find(tag.end, match.end())
            is_whole = stop >= 0 and text.startswith(tag.end, stop)
            pieces.append(Piece(text=text[match.end() : stop if stop >= 0 else None], tag=index, is_whole=is_whole))
            if not is_whole:
                return pieces
            done = stop + len(tag.end)
        self._add_text(pieces, text[done:], is_between=False)
        return pieces

    def _add_text(self, pieces: list[Piece], text: str, *, is_between: bool) -> None:
        if text and not (is_between and text == self.separator):
            pieces.append(Piece(text=text))


def _json_end(text: str, start: int) -> int:
    """Index past the JSON value that begins at ``start``; -1 where it is cut."""
    if not text.startswith(("{", "["), start):
        scalar = _JSON_SCALAR.match(text, start)
        return -1 if scalar is None else scalar.end()
    depth = 0
    for match in _JSON_PIECE.finditer(text, start):
        depth += match[0] in "[{"
        depth -= match[0] in "]}"
        if depth == 0:
            return match.end()
    return -1
