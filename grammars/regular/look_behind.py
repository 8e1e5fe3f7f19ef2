"""The BEHIND terms inside a term, and how they are replaced.

Invariant: a BEHIND term's own language is closed; nothing in it is ever replaced.
"""

from __future__ import annotations

from grammars.regular import kinds as k
from grammars.regular.terms import Terms


class LookBehinds:
    """Finds and replaces BEHIND terms of one table."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._within: dict[int, frozenset[int]] = {}

    def within(self, term: int) -> frozenset[int]:
        """The BEHIND terms inside a term, not those inside another one's language or scope."""
        found = self._within.get(term)
        if found is None:
            terms = self._terms
            kind, args = terms.kind[term], terms.args[term]
            if not terms.open[term]:
                found = frozenset()
            elif kind == k.BEHIND:
                found = frozenset([term])
            elif kind == k.CAT:
                found = self._within_list(term)
            else:
                found = frozenset().union(*map(self.within, args[:1] if kind == k.REP else args))
            self._within[term] = found
        return found

    def _within_list(self, term: int) -> frozenset[int]:
        terms = self._terms
        found: frozenset[int] = frozenset()
        while terms.kind[term] == k.CAT:
            head, term = terms.args[term]
            found |= self.within(head)
        return found | self.within(term)

    def rename(self, term: int, renamed: dict[int, int]) -> int:
        """The term with other terms in the place of BEHIND terms."""
        terms = self._terms
        if term in renamed:
            return renamed[term]
        if not self.within(term):
            return term
        kind, args = terms.kind[term], terms.args[term]
        if kind == k.CAT:
            return self._rename_list(term, renamed)
        if kind == k.REP:
            return terms.repeat(self.rename(args[0], renamed), args[1], args[2])
        inner = [self.rename(m, renamed) for m in args]
        if kind in (k.OR, k.AND):
            return terms.union(inner) if kind == k.OR else terms.intersection(inner)
        return terms.complement(inner[0]) if kind == k.NOT else terms.ahead(inner[0])

    def _rename_list(self, term: int, renamed: dict[int, int]) -> int:
        terms = self._terms
        heads = []
        while terms.kind[term] == k.CAT:
            head, term = terms.args[term]
            heads.append(self.rename(head, renamed))
        term = self.rename(term, renamed)
        for head in reversed(heads):
            term = terms.cat(head, term)
        return term
