"""The protocol of an automaton that is given by code instead of by operators (numbers, word lists).

Invariant: every state that `arcs` leads to can be completed to an accepting state.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Protocol

from grammars.regular.charset import CharSet


class Machine(Protocol):
    """A deterministic automaton over code points. States are hashable values of the machine's own choice."""

    def start(self) -> Hashable | None:
        """The start state, or None where the language is empty."""
        ...

    def classes(self) -> Iterable[CharSet]:
        """Every set that `arcs` can return."""
        ...

    def arcs(self, state: Hashable) -> Iterable[tuple[CharSet, Hashable]]:
        """Disjoint sets of characters and the state that each leads to."""
        ...

    def accepts(self, state: Hashable) -> bool:
        """The text so far is a word."""
        ...

    def shortest(self, state: Hashable) -> int:
        """A lower bound on the code points to an accepting state, 0 where `accepts`."""
        ...

    def identity(self) -> str:
        """Equal for machines with the same language and states; used in fingerprints."""
        ...
