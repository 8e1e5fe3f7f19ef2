"""Sources inside a source: they share its tables, each with states and handlers of its own.

An inner source is entered by pushing a handler of the outer one and leaves by popping it: with an exit or, where its
text may end, by a byte that it cannot read. Its own bottom handler is never on a stack. Invariant: every state and
handler belongs to the source that was at work when it was added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from grammars.matching.constraint import Language
from grammars.matching.hints import Hint
from grammars.matching.tables import NOTHING_REMEMBERED, Budget, Source, Tables

NameT = TypeVar("NameT")
OUTER = -1


class Embedding(Generic[NameT]):
    """The inner sources of one outer one, and the names of its own states and handlers."""

    def __init__(self, tables: Tables, languages: Sequence[Language]) -> None:
        self.tables = tables
        self._languages = languages
        self._sources: dict[int, Source] = {}
        self._starts: dict[int, int] = {}
        self._hints: dict[int, Callable[[int], Hint | None]] = {}
        self._shallows: dict[int, Callable[[int], int]] = {}
        self._budgets: dict[int, Callable[[int], Budget | None]] = {}
        self._state_owner = [OUTER] * tables.num_states
        self._handler_owner = [OUTER] * tables.num_handlers
        self._names: dict[int, NameT] = {}
        self._ids: dict[NameT, int] = {}
        self._handlers: dict[int, NameT] = {}
        self._handler_ids: dict[NameT, int] = {}

    def state(self, name: NameT) -> int:
        """The number of a state of the outer source."""
        state = self._ids.get(name)
        if state is None:
            state = self._ids[name] = self.tables.add_state()
            self._names[state] = name
        return state

    def handler(self, name: NameT) -> int:
        """The number of a handler of the outer source; it has one outcome."""
        handler = self._handler_ids.get(name)
        if handler is None:
            handler = self._handler_ids[name] = self.tables.add_handler(1, NOTHING_REMEMBERED)
            self._handlers[handler] = name
        return handler

    def enter(self, name: NameT, index: int) -> int:
        """The code of the byte after which the inner source ``index`` reads, up to a pop of the handler ``name``."""
        if index not in self._starts:
            self._start(index)
        return self.tables.push(self.handler(name), self._starts[index])

    def state_name(self, state: int) -> NameT | None:
        """The name of a state of the outer source; None for an inner one's."""
        return self._names.get(state)

    def handler_name(self, handler: int) -> NameT | None:
        """The same of a handler."""
        return self._handlers.get(handler)

    def expand(self, state: int) -> None:
        """Have the inner source that a state belongs to build its row."""
        self._claim(OUTER)
        owner = self._state_owner[state]
        self._sources[owner].expand(self.tables, state)
        self._claim(owner)

    def resolve(self, handler: int, outcome: int) -> int:
        """Have the inner source that a handler belongs to resolve it."""
        self._claim(OUTER)
        owner = self._handler_owner[handler]
        entered = self._sources[owner].resolve(self.tables, handler, outcome)
        self._claim(owner)
        return entered

    def hint(self, state: int) -> Hint | None:
        """What an inner source tells of a state."""
        hint_of = self._hints.get(self._owner(state))
        return None if hint_of is None else hint_of(state)

    def budget(self, state: int) -> Budget | None:
        """The budget of an inner source's state."""
        budget_of = self._budgets.get(self._owner(state))
        if budget_of is None:
            return None
        self._claim(OUTER)
        found = budget_of(state)
        self._claim(self._owner(state))
        return found

    def shallow(self, state: int) -> int:
        """What takes a state's place in a text that nests very deeply; our own states nest nothing."""
        shallow_of = self._shallows.get(self._owner(state))
        if shallow_of is None:
            return state
        self._claim(OUTER)
        twin = shallow_of(state)
        self._claim(self._owner(state))
        return twin

    def _start(self, index: int) -> None:
        tables = self.tables
        self._claim(OUTER)
        outer = tables.hint_of, tables.budget_of, tables.shallow_of, tables.least_of
        tables.hint_of = tables.budget_of = tables.shallow_of = tables.least_of = None
        self._sources[index] = source = self._languages[index].source()
        self._starts[index], _ = source.start(tables)
        if tables.hint_of is not None:
            self._hints[index] = tables.hint_of
        if tables.budget_of is not None:
            self._budgets[index] = tables.budget_of
        if tables.shallow_of is not None:
            self._shallows[index] = tables.shallow_of
        tables.hint_of, tables.budget_of, tables.shallow_of, tables.least_of = outer
        self._claim(index)

    def _owner(self, state: int) -> int:
        return self._state_owner[state] if state < len(self._state_owner) else OUTER

    def _claim(self, owner: int) -> None:
        """Give what was added since the last time to ``owner``."""
        self._state_owner += [owner] * (self.tables.num_states - len(self._state_owner))
        self._handler_owner += [owner] * (self.tables.num_handlers - len(self._handler_owner))
