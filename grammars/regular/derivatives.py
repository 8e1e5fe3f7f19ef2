"""Derivatives of terms by every character at once.

`arcs(t)` lists (guard, target) pairs with disjoint guards: after a character of the guard, what is left of t is the
target; on characters of no guard nothing is left (Brzozowski 1964; the guards are the derivative classes of Owens,
Reppy and Turon 2009). Invariant: no target is EMPTY. `step` is `arcs` for a language that stands alone: it also moves
the text behind BEHIND terms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from grammars.regular import kinds as k
from grammars.regular.json_escapes import JsonEscapes
from grammars.regular.kinds import EMPTY, EPSILON, INFINITE
from grammars.regular.look_behind import LookBehinds
from grammars.regular.machine import Machine
from grammars.regular.terms import Terms

Arcs = tuple[tuple[int, int], ...]


class Derivatives:
    """Memoised derivatives of the terms of one table."""

    def __init__(self, terms: Terms, machines: list[Machine]) -> None:
        self.terms = terms
        self._machines = machines
        self._arcs: dict[int, Arcs] = {}
        self._steps: dict[int, Arcs] = {}
        self._look_behinds = LookBehinds(terms)
        self._json = JsonEscapes(terms, self.step)
        self._by_kind: list[Callable[[int], Arcs]] = [self._none] * k.KINDS
        self._by_kind[k.CHARS] = self._chars
        self._by_kind[k.CAT] = self._list
        self._by_kind[k.OR] = self._or
        self._by_kind[k.AND] = self._and
        self._by_kind[k.NOT] = self._not
        self._by_kind[k.REP] = self._list
        self._by_kind[k.SCOPE] = self._scope
        self._by_kind[k.TAG] = self._tag
        self._by_kind[k.LEAF] = self._leaf
        self._by_kind[k.JSON] = self._json.arcs

    def step(self, term: int) -> Arcs:
        """The arcs of a language of whole texts, AHEAD and BEHIND in it confined to it."""
        if not self.terms.open[term]:
            return self.arcs(term)
        found = self._steps.get(term)
        if found is None:
            found = self._steps[term] = self._shift(self.arcs(term), self._look_behinds.within(term))
        return found

    def arcs(self, term: int) -> Arcs:
        """The arcs of a term; BEHIND terms in the targets still stand before the character."""
        found = self._arcs.get(term)
        if found is None:
            found = self._arcs[term] = self._by_kind[self.terms.kind[term]](term)
        return found

    def _none(self, _term: int) -> Arcs:
        return ()

    def _chars(self, term: int) -> Arcs:
        guard = self.terms.args[term][0]
        return ((guard, EPSILON),) if guard else ()

    def _list(self, term: int) -> Arcs:
        """CAT and REP: the arcs of whatever can come first, each with all that comes after it."""
        found: list[tuple[int, int]] = []
        self._before(term, EPSILON, found)
        return self._join([found])

    def _before(self, head: int, tail: int, found: list[tuple[int, int]]) -> None:
        """Add the arcs of ``head`` followed by ``tail`` that read their character in the head.

        What follows is built from its end, once for every place that a character can be read at, so that nested
        repetitions cost no more than their depth.
        """
        terms = self.terms
        args = terms.args[head]
        match terms.kind[head]:
            case k.CHARS:
                found.append((args[0], tail))
            case k.OR:
                for member in args:
                    self._before(member, tail, found)
            case k.CAT:
                self._before_list(head, tail, found)
            case k.REP if terms.nullable[args[0]] in (EMPTY, EPSILON):
                self._before(args[0], terms.cat(self._again(*args), tail), found)
            case k.REP:
                found += [(guard, terms.cat(target, tail)) for guard, target in self._conditional_repeat(*args)]
            case _:
                found += [(guard, terms.cat(target, tail)) for guard, target in self.arcs(head)]

    def _before_list(self, items: int, tail: int, found: list[tuple[int, int]]) -> None:
        """The prefixes of a list that can be skipped give way to what follows them."""
        terms = self.terms
        while terms.kind[items] == k.CAT:
            head, rest = terms.args[items]
            if terms.kind[head] == k.AHEAD:
                found += [(g, terms.cat(t, tail)) for g, t in self._ahead(terms.args[head][0], self.arcs(rest))]
                return
            if terms.kind[head] == k.BEHIND:
                if not terms.accepts(head):
                    return
            else:
                self._before(head, terms.cat(rest, tail), found)
                skip = terms.nullable[head]
                if skip == EMPTY:
                    return
                if skip != EPSILON:
                    self._before(terms.cat(skip, rest), tail, found)
                    return
            items = rest
        self._before(items, tail, found)

    def _again(self, body: int, least: int, most: int) -> int:
        """What is left of a repetition after one turn."""
        return self.terms.repeat(body, max(least - 1, 0), most if most == INFINITE else most - 1)

    def _ahead(self, language: int, arcs: Arcs) -> list[tuple[int, int]]:
        terms = self.terms
        return [
            (guard & other, terms.cat(terms.ahead(rest), target))
            for guard, rest in self.arcs(language)
            for other, target in arcs
            if guard & other
        ]

    def _or(self, term: int) -> Arcs:
        members = self.terms.args[term]
        self.terms.spend(len(members))
        return self._join([self.arcs(m) for m in members])

    def _join(self, alternatives: list[Iterable[tuple[int, int]]]) -> Arcs:
        """Union: split guards until they are disjoint, then unite the targets of each part."""
        parts: list[tuple[int, list[int]]] = []
        taken = 0
        for alternative in alternatives:
            for guard, target in alternative:
                if target == EMPTY:
                    continue
                fresh = guard & ~taken
                overlap = guard & taken
                taken |= guard
                if overlap:
                    parts = _split(parts, overlap, target)
                if fresh:
                    parts.append((fresh, [target]))
        return self._united(parts)

    def _united(self, parts: list[tuple[int, list[int]]]) -> Arcs:
        guards: dict[int, int] = {}
        self.terms.spend(len(parts))
        for guard, targets in parts:
            target = targets[0] if len(targets) == 1 else self.terms.union(targets)
            guards[target] = guards.get(target, 0) | guard
        return tuple((guard, target) for target, guard in guards.items())

    def _and(self, term: int) -> Arcs:
        terms = self.terms
        parts: list[tuple[int, tuple[int, ...]]] = [(terms.alphabet.full, ())]
        for m in terms.args[term]:
            arcs = self.arcs(m)
            parts = [(g & guard, (*targets, target)) for g, targets in parts for guard, target in arcs if g & guard]
        return self._join([[(guard, terms.intersection(targets)) for guard, targets in parts]])

    def _not(self, term: int) -> Arcs:
        terms = self.terms
        rest = terms.alphabet.full
        parts = []
        for guard, target in self.arcs(terms.args[term][0]):
            rest &= ~guard
            parts.append((guard, terms.complement(target)))
        if rest:
            parts.append((rest, terms.any_text))
        return self._join([parts])

    def _conditional_repeat(self, body: int, least: int, most: int) -> Arcs:
        """Where the body's condition holds here, any number of its turns can pass without reading."""
        terms = self.terms
        arcs = self.arcs(body)
        again = self._again(body, least, most)
        first = [(guard, terms.cat(target, again)) for guard, target in arcs]
        if least < 2:
            return self._join([first])
        free = self._again(body, 1, most)
        passing = tuple((guard, terms.cat(target, free)) for guard, target in arcs)
        return self._join([first, self._under(terms.nullable[body], passing)])

    def _under(self, condition: int, arcs: Arcs) -> list[tuple[int, int]]:
        """The arcs where a zero-width condition holds."""
        terms = self.terms
        kind, args = terms.kind[condition], terms.args[condition]
        if kind == k.OR:
            return [arc for m in args for arc in self._under(m, arcs)]
        if kind == k.CAT:
            return self._under(args[0], tuple(self._under(args[1], arcs)))
        if kind == k.BEHIND:
            return list(arcs) if terms.accepts(condition) else []
        return self._ahead(args[0], arcs)

    def _scope(self, term: int) -> Arcs:
        terms = self.terms
        return self._join([[(guard, terms.scope(target)) for guard, target in self.step(terms.args[term][0])]])

    def _tag(self, term: int) -> Arcs:
        label, body = self.terms.args[term]
        return tuple((guard, self.terms.tag(label, target)) for guard, target in self.step(body))

    def _leaf(self, term: int) -> Arcs:
        terms = self.terms
        index, state = terms.leaves[terms.args[term][0]]
        machine = self._machines[index]
        guard = terms.alphabet.guard
        parts = [(guard(charset), terms.leaf(index, machine, target)) for charset, target in machine.arcs(state)]
        return self._join([[part for part in parts if part[0]]])

    def _shift(self, arcs: Arcs, behinds: frozenset[int]) -> Arcs:
        """Move the languages of the BEHIND terms over the character, too."""
        terms = self.terms
        parts: list[tuple[int, int, dict[int, int]]] = [(guard, target, {}) for guard, target in arcs]
        for behind in sorted(behinds):
            moves = [(guard, terms.behind(rest)) for guard, rest in self.step(terms.args[behind][0])]
            lost = terms.alphabet.full
            for guard, _ in moves:
                lost &= ~guard
            moves.append((lost, EMPTY))
            parts = [
                (guard & moved, target, renamed | {behind: rest})
                for guard, target, renamed in parts
                for moved, rest in moves
                if guard & moved
            ]
        return self._join([[(guard, self._look_behinds.rename(target, renamed)) for guard, target, renamed in parts]])


def _split(parts: list[tuple[int, list[int]]], guard: int, target: int) -> list[tuple[int, list[int]]]:
    split = []
    for g, targets in parts:
        inside = g & guard
        if not inside:
            split.append((g, targets))
            continue
        if inside != g:
            split.append((g & ~guard, targets))
        split.append((inside, [*targets, target]))
    return split
