"""What the numbered states and handlers of a table stand for.

Invariant: equal names have one number, and a number keeps its name. Numbers of other sources may lie between.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from grammars.json_schema.fixed import CLOSES, FixedAutomaton, Kind, fixed
from grammars.matching.tables import NO_OUTCOME, NOTHING_REMEMBERED, Remembering, Tables
from grammars.regular.charset import CharSet

Name = tuple[Any, ...]
"""What kind of state or handler it is, and of what."""


class Names:
    """Names of one source's states and handlers; `tables` are those that they are numbered in."""

    def __init__(self, tables: Tables, characters: CharSet) -> None:
        """``characters``: those that a text may have raw."""
        self.tables = tables
        self.characters = characters
        self._states: dict[int, Name] = {}
        self._state_ids: dict[Name, int] = {}
        self._handlers: dict[int, Name] = {}
        self._handler_ids: dict[Name, int] = {}
        self._blocks: dict[tuple[Kind, int], int] = {}

    def state(self, name: Name) -> int:
        """The number of a state, which is new where the name is."""
        state = self._state_ids.get(name)
        if state is None:
            state = self._state_ids[name] = self.tables.add_state()
            self._states[state] = name
        return state

    def handler(self, name: Name, num_outcomes: int, remembering: Remembering = NOTHING_REMEMBERED) -> int:
        """The number of a handler, which is new where the name is."""
        handler = self._handler_ids.get(name)
        if handler is None:
            handler = self._handler_ids[name] = self.tables.add_handler(num_outcomes, remembering)
            self._handlers[handler] = name
        return handler

    def state_name(self, state: int) -> Name:
        """The name of a state."""
        return self._states[state]

    def handler_name(self, handler: int) -> Name:
        """The name of a handler."""
        return self._handlers[handler]

    def chain(self, text: bytes, code: int, names: list[Name]) -> int:
        """The first of new states that read ``text``, whose names nothing else will ask for."""
        first = self.tables.add_chain(text, code)
        self._states.update(enumerate(names, start=first))
        return first

    def run(self, state: int, row: npt.NDArray[np.int32], text: bytes, names: list[Name]) -> None:
        """Give ``state`` and new ones along ``text`` their rows, see `Tables.add_run`; nothing else asks for them."""
        first = self.tables.add_run(state, row, text)
        self._states.update(enumerate(names, start=first))

    def fixed(self, kind: Kind) -> FixedAutomaton:
        """A fixed automaton over the characters of these texts."""
        return fixed(kind, self.characters)

    def fixed_state(self, kind: Kind, outcome: int, inner: int) -> int:
        """A state of a fixed automaton that ends with ``outcome``; its rows are there at once."""
        first = self._blocks.get((kind, outcome))
        if first is None:
            automaton = self.fixed(kind)
            rows = np.where(automaton.rows == CLOSES, self.tables.exit(outcome), automaton.rows)
            final = np.where(automaton.final == NO_OUTCOME, NO_OUTCOME, outcome).astype(np.int32)
            first = self._blocks[kind, outcome] = self.tables.add_block(
                rows.astype(np.int32), final, (kind, outcome, self.characters)
            )
            self._states.update((first + place, ("fixed", kind, place + 1)) for place in range(len(rows)))
        return first + inner - 1
