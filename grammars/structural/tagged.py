"""Free text and constrained parts in turn, as a source of states.

    text ──trigger── beginning ──(push)── content ──(pop)── ending ── text, with one more part
     │ budget spent                                                     │
     └ closing ── beginning                                             └ accepts where there are parts enough

A state knows how many parts there were, as far as that matters. Text is *fresh* as long as it is nothing but the
beginning of a marker: there a part may begin where no free text may stand. Invariant: every state leads to one that
accepts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from grammars.matching.constraint import Language
from grammars.matching.tables import NO_OUTCOME, Budget, Tables
from grammars.regular.charset import ANY, CharSet
from grammars.structural.embedding import Embedding
from grammars.structural.scanner import ROOT, START, Found, Place, Scanner


@dataclass(frozen=True, slots=True, kw_only=True)
class TagLanguage:
    """One kind of part: its markers as automata read them, and what stands between.

    Where the content ends at a marker's first bytes, these belong to `content` and not to `end`.
    """

    begin: bytes
    end: bytes
    content: Language


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedLanguage:
    """Texts of free text and parts.

    Attributes:
        triggers: as automata read them.
        forbidden: pieces that free text must not hold.
        characters: those of the free text; the markers have no others.
        others: see `grammars.structural.spec.StructuralTags`.
    """

    tags: tuple[TagLanguage, ...]
    triggers: tuple[bytes, ...]
    forbidden: tuple[bytes, ...]
    separator: bytes
    least: int
    most: int | None
    before: bool
    between: bool
    after: bool
    max_text_tokens: int | None
    characters: CharSet = ANY

    def source(self) -> TaggedSource:
        """A fresh source of states."""
        return TaggedSource(self)


class _Text(NamedTuple):
    parts: int
    place: Place
    is_fresh: bool


class _Closing(NamedTuple):
    parts: int
    place: Place


class _Beginning(NamedTuple):
    """At a node of the trie of begin markers."""

    parts: int
    node: int


class _Content(NamedTuple):
    """A handler: the content of a tag, with so many parts before it."""

    parts: int
    tag: int


class _Ending(NamedTuple):
    """So many bytes of a tag's end marker are read."""

    parts: int
    tag: int
    num_read: int


class _Done(NamedTuple):
    word: str = "done"


_Name = _Text | _Closing | _Beginning | _Content | _Ending | _Done


class TaggedSource:
    """`grammars.matching.tables.Source` of the above."""

    def __init__(self, language: TaggedLanguage) -> None:
        self._language = language
        self._begins = _Begins([tag.begin for tag in language.tags])
        first = language.triggers if self._may_begin(0) else ()
        self._scanners = (
            self._scanner_of(first, () if first else language.triggers),
            self._later_scanner(),
            self._scanner_of((), language.triggers),
        )

    def _later_scanner(self) -> Scanner:
        """Where there are parts already, and more may come: they may have to follow each other at once."""
        language = self._language
        if language.between or not language.separator:
            return self._scanner_of(language.triggers)
        separated = tuple(language.separator + trigger for trigger in language.triggers)
        return self._scanner_of(separated, language.triggers)

    def _scanner_of(self, markers: tuple[bytes, ...], forbidden: tuple[bytes, ...] = ()) -> Scanner:
        """One that also forbids what all free text must not hold."""
        language = self._language
        return Scanner(markers, language.forbidden + forbidden, characters=language.characters)

    def start(self, tables: Tables) -> tuple[int, int]:
        """The state before the text."""
        self._states = states = Embedding[_Name](tables, [tag.content for tag in self._language.tags])
        tables.hint_of = states.hint
        tables.shallow_of = states.shallow
        tables.budget_of = self._budget
        return states.state(_Text(0, START, is_fresh=True)), states.handler(_Done())

    def expand(self, tables: Tables, state: int) -> None:
        """Build one row."""
        name = self._states.state_name(state)
        match name:
            case _Done():
                tables.set_row(state, (), final=0)
            case _Text():
                tables.set_row(state, self._text_row(name), 0 if self._may_end(name) else NO_OUTCOME)
            case _Closing(parts, place):
                scanner = self._scanner(parts)
                steps = scanner.closing_steps(place) if self._may_begin_after_text(parts) else ()
                if not place.is_whole and not self._may_begin_after_text(parts):
                    steps = scanner.steps(place)
                whole = place.is_whole and self._may_end_in_text(parts)
                tables.set_row(state, self._closing_row(parts, steps), 0 if whole else NO_OUTCOME)
            case _Beginning(parts, node):
                tables.set_row(state, [(byte, self._begun(parts, after)) for byte, after in self._begins.steps(node)])
            case _Ending(parts, tag, count):
                end = self._language.tags[tag].end
                tables.set_row(state, [(end[count], self._ended(parts, tag, count + 1))])
            case _:
                self._states.expand(state)

    def resolve(self, tables: Tables, handler: int, outcome: int) -> int:  # noqa: ARG002 - see `Source`
        """The state after a part's content."""
        name = self._states.handler_name(handler)
        match name:
            case _Content(parts, tag):
                return self._ended(parts, tag, 0)
            case _Done():
                return self._states.state(_Done())
            case _:
                return self._states.resolve(handler, outcome)

    def _text_row(self, name: _Text) -> list[tuple[int, int]]:
        parts, place, is_fresh = name
        row = []
        scanner = self._scanner(parts)
        for byte, after in scanner.steps(place):
            stays_fresh = is_fresh and scanner.goes_down(place, after)
            if isinstance(after, Found):
                if stays_fresh or self._may_begin_after_text(parts):
                    row.append((byte, self._triggered(parts, after)))
            elif stays_fresh or self._may_hold_text(parts):
                row.append((byte, self._states.state(_Text(parts, after, stays_fresh))))
        return row

    def _closing_row(self, parts: int, steps: Iterable[tuple[int, Place | Found]]) -> list[tuple[int, int]]:
        return [
            (
                byte,
                self._triggered(parts, after)
                if isinstance(after, Found)
                else self._states.state(_Closing(parts, after)),
            )
            for byte, after in steps
        ]

    def _triggered(self, parts: int, found: Found) -> int:
        """The code of the last byte of a trigger."""
        return self._begun(parts, self._begins.node(self._language.triggers[found.marker]))

    def _begun(self, parts: int, node: int) -> int:
        """The code of a byte that leads to a node of the begin markers."""
        tag = self._begins.tag(node)
        if tag is None:
            return self._states.state(_Beginning(parts, node))
        return self._states.enter(_Content(self._one_more(parts), tag), tag)

    def _ended(self, parts: int, tag: int, count: int) -> int:
        if count < len(self._language.tags[tag].end):
            return self._states.state(_Ending(parts, tag, count))
        return self._states.state(_Text(parts, START, is_fresh=True))

    def _one_more(self, parts: int) -> int:
        """The number of parts, as far as it matters; whether there was one does."""
        most = self._language.most
        return min(parts + 1, max(self._language.least, 1) if most is None else most)

    def _scanner(self, parts: int) -> Scanner:
        if not self._may_begin(parts):
            return self._scanners[2]
        return self._scanners[1 if parts else 0]

    def _may_begin(self, parts: int) -> bool:
        return bool(self._language.tags) and (self._language.most is None or parts < self._language.most)

    def _may_begin_after_text(self, parts: int) -> bool:
        return self._may_begin(parts) and (self._language.between if parts else self._language.before)

    def _may_end_in_text(self, parts: int) -> bool:
        return parts >= self._language.least and (self._language.after if parts else self._language.before)

    def _may_hold_text(self, parts: int) -> bool:
        return self._may_begin_after_text(parts) or self._may_end_in_text(parts)

    def _may_end(self, name: _Text) -> bool:
        parts, place, is_fresh = name
        if is_fresh and place == START:
            return parts >= self._language.least
        return place.is_whole and self._may_end_in_text(parts)

    def _budget(self, state: int) -> Budget | None:
        name = self._states.state_name(state)
        if name is None:
            return self._states.budget(state)
        most = self._language.max_text_tokens
        if most is None or not isinstance(name, _Text) or (name.is_fresh and name.place == START):
            return None
        if not self._may_hold_text(name.parts):
            return None
        closing = self._states.state(_Closing(name.parts, name.place))
        return Budget(run=("text", name.parts), most=most, closing=closing)


class _Begins:
    """A trie of the begin markers; none is the beginning of another."""

    def __init__(self, begins: Iterable[bytes]) -> None:
        self._next: list[dict[int, int]] = [{}]
        self._tags: dict[int, int] = {}
        for tag, begin in enumerate(begins):
            node = ROOT
            for byte in begin:
                if byte not in self._next[node]:
                    self._next[node][byte] = len(self._next)
                    self._next.append({})
                node = self._next[node][byte]
            self._tags[node] = tag

    def node(self, piece: bytes) -> int:
        """The node at the end of a piece that some marker begins with."""
        node = ROOT
        for byte in piece:
            node = self._next[node][byte]
        return node

    def tag(self, node: int) -> int | None:
        """The tag whose begin marker ends here."""
        return self._tags.get(node)

    def steps(self, node: int) -> Iterable[tuple[int, int]]:
        """(byte, node) of the markers that go on from here."""
        return self._next[node].items()
