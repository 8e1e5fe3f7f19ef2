"""Grammars that requests in the engine's process wait for.

They arrive on the thread that reads commands, and the engine may take one in the middle of a step; the rest of the loop
hears of it in the order of commands. Invariant: a grammar that arrived reaches everybody who waits for it, and nobody
is kept who left.
"""

from __future__ import annotations

from collections.abc import Mapping

from decoding.errors import EspalierError
from grammars.protocol import Grammar

Arrivals = dict[str, "Grammar | EspalierError"]
"""What was read and not yet obeyed, by key. Written by one thread and read by another, one item at a time."""


class AwaitedGrammar:
    """`engine.request.AwaitedGrammar` of one request."""

    def __init__(self, key: str, arrivals: Mapping[str, Grammar | EspalierError]) -> None:
        self.key = key
        self._arrivals = arrivals
        self._grammar: Grammar | None = None

    def arrived(self) -> Grammar | None:
        """The grammar, once it is there."""
        if self._grammar is None:
            found = self._arrivals.get(self.key)
            self._grammar = None if isinstance(found, EspalierError) else found
        return self._grammar

    def keep(self, grammar: Grammar) -> None:
        """It arrived."""
        self._grammar = grammar


class AwaitedGrammars:
    """Who waits for what, by request."""

    def __init__(self, arrivals: Mapping[str, Grammar | EspalierError]) -> None:
        self._arrivals = arrivals
        self._by_request: dict[str, AwaitedGrammar] = {}

    def begin(self, request_id: str, key: str) -> AwaitedGrammar:
        """A request waits for the grammar ``key``."""
        awaited = self._by_request[request_id] = AwaitedGrammar(key, self._arrivals)
        return awaited

    def leave(self, request_id: str) -> None:
        """A request ended, or never began; ids that do not wait are ignored."""
        self._by_request.pop(request_id, None)

    def end(self, key: str) -> list[tuple[str, AwaitedGrammar]]:
        """Those who waited for ``key`` and need not any more, and their requests."""
        found = [(request_id, awaited) for request_id, awaited in self._by_request.items() if awaited.key == key]
        for request_id, _ in found:
            self.leave(request_id)
        return found
