"""Free text, its end marker, and then whatever another source reads.

    opening ── thinking ── ending ──(push)── inner source ──(pop)── done
               │ budget spent
               └ closing ── ending

Invariant: the inner source reads nothing before the end marker was read in full.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from grammars.matching.constraint import Language
from grammars.matching.tables import Budget, Tables
from grammars.regular.charset import ANY, CharSet
from grammars.structural.embedding import Embedding
from grammars.structural.scanner import START, Found, Place, Scanner


class _Opening(NamedTuple):
    """So many bytes of the begin marker are read."""

    num_read: int


class _Thinking(NamedTuple):
    place: Place
    has_begun: bool = True


class _Closing(NamedTuple):
    place: Place


class _Ending(NamedTuple):
    """So many bytes of the end marker are read."""

    num_read: int


class _Done(NamedTuple):
    word: str = "done"


_Name = _Opening | _Thinking | _Closing | _Ending | _Done


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningLanguage:
    """Reasoning, then a text of ``then``.

    Attributes:
        begin, end: as automata read them; `end` is found by its first ``num_opening`` bytes.
        forbidden: pieces that the reasoning must not hold.
        max_tokens: see `grammars.structural.spec.Reasoning`.
        characters: those of the reasoning; the markers and `then` have no others.
    """

    begin: bytes
    end: bytes
    num_opening: int
    forbidden: tuple[bytes, ...]
    max_tokens: int | None
    then: Language
    characters: CharSet = ANY

    def source(self) -> ReasoningSource:
        """A fresh source of states."""
        return ReasoningSource(self)


class ReasoningSource:
    """`grammars.matching.tables.Source` of the above."""

    def __init__(self, language: ReasoningLanguage) -> None:
        self._language = language
        end = language.end[: language.num_opening]
        self._scanner = Scanner([end], language.forbidden, characters=language.characters)

    def start(self, tables: Tables) -> tuple[int, int]:
        """The state before the text."""
        self._states = states = Embedding[_Name](tables, [self._language.then])
        tables.hint_of = states.hint
        tables.shallow_of = states.shallow
        tables.budget_of = self._budget
        first = _Opening(0) if self._language.begin else _Thinking(START, has_begun=False)
        return states.state(first), states.handler(_Done())

    def expand(self, tables: Tables, state: int) -> None:
        """Build one row."""
        name = self._states.state_name(state)
        match name:
            case None:
                self._states.expand(state)
            case _Done():
                tables.set_row(state, (), final=0)
            case _Opening(count):
                tables.set_row(state, [(self._language.begin[count], self._opened(count + 1))])
            case _Ending(count):
                tables.set_row(state, [(self._language.end[count], self._ended(count + 1))])
            case _Thinking(place):
                tables.set_row(state, self._codes(self._scanner.steps(place), _Thinking))
            case _Closing(place):
                tables.set_row(state, self._codes(self._scanner.closing_steps(place), _Closing))

    def resolve(self, tables: Tables, handler: int, outcome: int) -> int:  # noqa: ARG002 - see `Source`
        """After the inner source nothing follows."""
        if self._states.handler_name(handler) is None:
            return self._states.resolve(handler, outcome)
        return self._states.state(_Done())

    def _codes(
        self, steps: Iterable[tuple[int, Place | Found]], kind: type[_Thinking | _Closing]
    ) -> list[tuple[int, int]]:
        found = self._ended(self._language.num_opening)
        return [(byte, found if isinstance(after, Found) else self._states.state(kind(after))) for byte, after in steps]

    def _opened(self, count: int) -> int:
        whole = count == len(self._language.begin)
        return self._states.state(_Thinking(START, has_begun=False) if whole else _Opening(count))

    def _ended(self, count: int) -> int:
        if count < len(self._language.end):
            return self._states.state(_Ending(count))
        return self._states.enter(_Done(), 0)

    def _budget(self, state: int) -> Budget | None:
        name = self._states.state_name(state)
        if name is None:
            return self._states.budget(state)
        most = self._language.max_tokens
        if most is None or not isinstance(name, _Thinking) or not name.has_begun:
            return None
        return Budget(run="reasoning", most=most, closing=self._states.state(_Closing(name.place)))
