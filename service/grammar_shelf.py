"""The grammars that the engine's process holds, and what they grow to.

A grammar arrives small and builds tables and masks while requests walk it. Past a bound, what the least recently used
ones built is dropped; it is built again where it is needed. Invariant: a request that runs keeps what it started with.
"""

from __future__ import annotations

from collections import OrderedDict

from decoding.errors import EspalierError
from grammars.matching.constraint import LazyGrammar
from grammars.protocol import Grammar

MAX_BYTES = 1 << 28
"""Most bytes of tables and masks that idle grammars keep together."""


class GrammarShelf:
    """Grammars by key, or why they could not be loaded, within ``max_bytes`` of what they built."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._grammars: OrderedDict[str, Grammar | EspalierError] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self._grown: set[str] = set()

    def put(self, key: str, grammar: Grammar | EspalierError) -> None:
        """Hold a grammar under its key."""
        self._grammars[key] = grammar
        self._grown.add(key)

    def drop(self, key: str) -> None:
        """Forget a grammar."""
        del self._grammars[key]
        self._sizes.pop(key, None)
        self._grown.discard(key)

    def __contains__(self, key: str) -> bool:
        return key in self._grammars

    def take(self, key: str) -> Grammar:
        """The grammar for a request that begins. Raises what kept it from loading."""
        self._shrink()
        grammar = self._grammars[key]
        if isinstance(grammar, EspalierError):
            raise grammar
        self._grammars.move_to_end(key)
        self._grown.add(key)
        return grammar

    def _shrink(self) -> None:
        """Measure what may have grown since the last time, and renew the oldest grammars past the bound."""
        for key in self._grown:
            grammar = self._grammars[key]
            self._sizes[key] = grammar.num_bytes if isinstance(grammar, LazyGrammar) else 0
        self._grown.clear()
        total = sum(self._sizes.values())
        for key, grammar in self._grammars.items():
            if total <= self._max_bytes:
                return
            if isinstance(grammar, LazyGrammar) and self._sizes[key]:
                total -= self._sizes[key]
                self._sizes[key] = 0
                self._grammars[key] = grammar.renewed()
