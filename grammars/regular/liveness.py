"""Whether a term's language has a word at all.

Positive terms are non-empty by construction; intersections, complements and look-around are searched, best first, until
a word or a term known to have one turns up. Invariant: the answer is exact; a search that exceeds the allowance of its
table raises instead of guessing.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from grammars.regular import json_escapes
from grammars.regular import kinds as k
from grammars.regular.derivatives import Derivatives
from grammars.regular.kinds import EMPTY


class Liveness:
    """Memoised answers for the terms of one table."""

    def __init__(self, derivatives: Derivatives) -> None:
        self._terms = derivatives.terms
        self._step = derivatives.step
        self._known: dict[int, bool] = {EMPTY: False}

    def live(self, term: int) -> bool:
        """The language of a term that stands alone has a word."""
        if self._terms.sure[term]:
            return True
        found = self._known.get(term)
        if found is None:
            found = self._known[term] = self._search(term) if self._needs_search(term) else self._by_structure(term)
        return found

    def _needs_search(self, term: int) -> bool:
        kind = self._terms.kind[term]
        if kind == k.LEAF:
            return not self._terms.sure[term]
        return kind in (k.AND, k.NOT, k.SCOPE) or self._terms.open[term]

    def _by_structure(self, term: int) -> bool:
        kind, args = self._terms.kind, self._terms.args
        if kind[term] == k.OR:
            return any(self.live(m) for m in args[term])
        while kind[term] == k.CAT:
            head, term = args[term]
            if not self.live(head):
                return False
            if self._needs_search(term) or kind[term] != k.CAT:
                return self.live(term)
        if kind[term] == k.REP:
            return self.live(args[term][0])
        if kind[term] == k.JSON and args[term][0] != json_escapes.BODY:
            return self._in_spelling(term)
        assert kind[term] in (k.TAG, k.JSON)
        return self.live(args[term][-1])

    def _in_spelling(self, term: int) -> bool:
        """The same of a JSON term inside the spelling of a character.

        A block holds a character of each of its arcs, and each of them can be spelled to its end.
        """
        place, _, _, *pairs = self._terms.args[term]
        if pairs:
            return any(self.live(text) for text in pairs[1::2])
        assert place in (json_escapes.ESCAPE, json_escapes.START, json_escapes.D)
        return any(self.live(target) for _, target in self._step(term))

    def _search(self, start: int) -> bool:
        terms = self._terms
        parents: dict[int, int] = {start: -1}
        frontier = [(terms.shortest[start], start)]
        while frontier:
            _, term = heappop(frontier)
            if terms.accepts(term):
                return self._mark_path(term, parents)
            for target in self._targets(term):
                if target in parents:
                    continue
                parents[target] = term
                known = self._known.get(target)
                if known or (known is None and not self._needs_search(target) and self.live(target)):
                    return self._mark_path(target, parents)
                if known is None:
                    terms.spend(1)
                    heappush(frontier, (terms.shortest[target], target))
        self._known.update(dict.fromkeys(parents, False))
        return False

    def _targets(self, term: int) -> Iterator[int]:
        """The derivatives, with the members of a union in its place: one of them suffices."""
        terms = self._terms
        for _, target in self._step(term):
            if terms.kind[target] == k.OR:
                yield from terms.args[target]
            else:
                yield target

    def _mark_path(self, term: int, parents: dict[int, int]) -> bool:
        while term >= 0:
            self._known[term] = True
            term = parents[term]
        return True
