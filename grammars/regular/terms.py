"""Terms: expressions over minterms, interned so that equal terms are one small integer.

Two terms that the rules below make alike are the same integer; a state of the automaton is a term. The rules are the
similarity rules of Owens, Reppy and Turon (2009, section 4.1) plus merging of counters, which keeps the sets of counters
that a determinised counted repetition needs small. Invariant: the language of a term never depends on which rules applied.

Zero-width terms: AHEAD(L) holds where all the text that is left is in L; BEHIND(L) holds where the text read since this term
was made is in L (so L is derived along with every character read). SCOPE(x) confines them to x.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final

from grammars.regular.alphabet import Alphabet

CHARS: Final = 0
CAT: Final = 1
OR: Final = 2
AND: Final = 3
NOT: Final = 4
REP: Final = 5
AHEAD: Final = 6
BEHIND: Final = 7
SCOPE: Final = 8
TAG: Final = 9
LEAF: Final = 10
JSON: Final = 11
KINDS: Final = 12

EMPTY: Final = 0
EPSILON: Final = 1
CONDITIONAL: Final = -1

INFINITE: Final = 1 << 62


class WorkExhaustedError(Exception):
    """More terms were made than the current allowance."""


class Terms:
    """The table of terms and their normalising constructors."""

    def __init__(self, alphabet: Alphabet) -> None:
        self.alphabet = alphabet
        self.kind: list[int] = []
        self.args: list[tuple[int, ...]] = []
        self.nullable: list[int] = []
        """EMPTY: lacks the empty text; EPSILON: has it; CONDITIONAL: ask `accepts` (never at the head of a CAT); else the
        zero-width term under which it has it."""
        self.shortest: list[int] = []
        """A lower bound on the code points of a word."""
        self.longest: list[int] = []
        """An upper bound on the code points of a word."""
        self.open: list[bool] = []
        """Look-around in it reaches out of it."""
        self.sure: list[bool] = []
        """The language is not empty, by construction."""
        self.leaves: list[tuple[int, Hashable]] = []
        self.allowance = INFINITE
        self._ids: dict[tuple[int, tuple[int, ...]], int] = {}
        self._leaf_ids: dict[tuple[int, Hashable], int] = {}
        self._intern(CHARS, (0,), EMPTY, INFINITE, 0, False, False)
        self._intern(REP, (EMPTY, 0, 0), EPSILON, 0, 0, False, True)
        self.any_char = self.chars(alphabet.full)
        self.any_text = self.repeat(self.any_char, 0, INFINITE)

    def chars(self, guard: int) -> int:
        """One character of a minterm of the guard."""
        return self._intern(CHARS, (guard,), EMPTY, 1, 1, False, True) if guard else EMPTY

    def cat(self, head: int, tail: int) -> int:
        """Concatenation, as a right-nested list without unions at its heads."""
        kind = self.kind
        if head == EPSILON or tail == EMPTY:
            return tail
        if head == EMPTY or tail == EPSILON:
            return head
        if kind[head] == OR:
            return self.union([self.cat(member, tail) for member in self.args[head]])
        heads = []
        while kind[head] == CAT:
            first, head = self.args[head]
            heads.append(first)
        if kind[head] == OR:  # the last of a list may be a union
            tail = self.cat(head, tail)
        else:
            heads.append(head)
        for first in reversed(heads):
            tail = self._cons(first, tail)
        return tail

    def _cons(self, head: int, tail: int) -> int:
        kind, args = self.kind, self.args
        first, rest = args[tail] if kind[tail] == CAT else (tail, EPSILON)
        if kind[head] == REP or kind[first] == REP:
            merged = self._merge_counts(head, first)
            if merged >= 0:
                return self.cat(merged, rest)
        if tail == EPSILON:
            return head
        if kind[head] == AHEAD:
            if kind[first] == AHEAD:
                return self.cat(self.ahead(self.intersection((args[head][0], args[first][0]))), rest)
            if kind[first] == BEHIND:
                return self._cons(first, self._cons(head, rest))
        elif kind[head] == BEHIND and head == first:
            return tail
        if self.open[tail] and self.longest[head] == self.longest[tail] == 0:
            return self._zero_width(CAT, (head, tail))
        return self._intern(
            CAT,
            (head, tail),
            self._both(self.nullable[head], self.nullable[tail]),
            min(self.shortest[head] + self.shortest[tail], INFINITE),
            min(self.longest[head] + self.longest[tail], INFINITE),
            self.open[head] or self.open[tail],
            self.sure[head] and self.sure[tail],
        )

    def _merge_counts(self, head: int, first: int) -> int:
        """``x{a,b}x{c,d} = x{a+c,b+d}``, where a bare x counts as x{1,1}; -1 where the bodies differ."""
        body, least, most = self.args[head] if self.kind[head] == REP else (head, 1, 1)
        other, more_least, more_most = self.args[first] if self.kind[first] == REP else (first, 1, 1)
        if body != other or EPSILON in (head, first):
            return -1
        return self.repeat(body, least + more_least, most + more_most)

    def _both(self, left: int, right: int) -> int:
        if left == EPSILON or right == EMPTY:
            return right
        if right == EPSILON or left == EMPTY:
            return left
        return CONDITIONAL if CONDITIONAL in (left, right) else self.cat(left, right)

    def _either(self, conditions: set[int]) -> int:
        if EPSILON in conditions:
            return EPSILON
        return CONDITIONAL if CONDITIONAL in conditions else self.union(conditions)

    def repeat(self, body: int, least: int, most: int) -> int:
        """Between ``least`` and ``most`` bodies; `INFINITE` for no upper bound."""
        most = min(most, INFINITE)
        if most == 0 or body == EPSILON:
            return EPSILON
        if body == EMPTY:
            return EMPTY if least else EPSILON
        if self.nullable[body] == EPSILON:
            least = 0
        if self.longest[body] == 0:  # a condition
            return body if least else EPSILON
        if least == most == 1:
            return body
        if self.kind[body] == REP and _counts_are_contiguous(self.args[body], least, most):
            inner, low, high = self.args[body]
            return self.repeat(inner, low * least, min(high * most, INFINITE))
        return self._intern(
            REP,
            (body, least, most),
            EPSILON if least == 0 else self.nullable[body],
            min(self.shortest[body] * least, INFINITE),
            min(self.longest[body] * most, INFINITE),
            self.open[body],
            least == 0 or self.sure[body],
        )

    def union(self, members: Iterable[int]) -> int:
        """Union in normal form: flat, sorted, without members that another one contains as far as the rules see."""
        flat: set[int] = set()
        for member in members:
            if self.kind[member] == OR:
                flat.update(self.args[member])
            elif member != EMPTY:
                flat.add(member)
        if self.any_text in flat:
            return self.any_text
        if len(flat) > 1:
            flat = self._absorb(self._merge_alternatives(flat))
        if len(flat) < 2:
            return flat.pop() if flat else EMPTY
        key = tuple(sorted(flat))
        found = self._ids.get((OR, key))
        if found is not None:
            return found
        longest = max(self.longest[m] for m in key)
        if longest == 0:
            return self._zero_width(OR, key)
        return self._intern(
            OR,
            key,
            self._either({self.nullable[m] for m in key}),
            min(self.shortest[m] for m in key),
            longest,
            any(self.open[m] for m in key),
            any(self.sure[m] for m in key),
        )

    def _merge_alternatives(self, flat: set[int]) -> set[int]:
        """Join ``[a]t | [b]t`` to ``[ab]t`` and ``x{2,5}t | x{4,9}t`` to ``x{2,9}t``."""
        kind, args = self.kind, self.args
        guards: dict[int, int] = {}
        counts: dict[tuple[int, int], list[tuple[int, int]]] = {}
        kept: set[int] = set()
        for member in flat:
            head, tail = args[member] if kind[member] == CAT else (member, EPSILON)
            if kind[head] == CHARS:
                guards[tail] = guards.get(tail, 0) | args[head][0]
            elif kind[head] == REP and head != EPSILON:
                body, least, most = args[head]
                counts.setdefault((body, tail), []).append((least, most))
            else:
                kept.add(member)
        if len(guards) + sum(map(len, counts.values())) + len(kept) == len(flat) and all(
            len(intervals) == 1 and intervals[0][0] != 1 for intervals in counts.values()
        ):
            return flat
        kept.update(self.cat(self.chars(guard), tail) for tail, guard in guards.items())
        for (body, tail), intervals in counts.items():
            if tail in flat and min(intervals)[0] <= 1:  # t is x{0,0}t
                intervals.append((0, 0))
            for least, most in _joined(intervals):
                kept.add(self.cat(self.repeat(body, least, most), tail))
        return kept

    def _absorb(self, flat: set[int]) -> set[int]:
        """Drop t beside ``xt`` with nullable x, and ``yt`` beside ``.*t`` for every y."""
        kind, args, nullable = self.kind, self.args, self.nullable
        weaker: set[int] = set()
        searched: set[int] = set()
        has_empty = False
        for member in flat:
            if kind[member] == CAT:
                head, tail = args[member]
                if nullable[head] == EPSILON:
                    weaker.update(args[tail] if kind[tail] == OR else (tail,))
                    if head == self.any_text:
                        searched.add(member)
            if nullable[member] == EPSILON and member != EPSILON:
                has_empty = True
        kept = flat - weaker
        if has_empty or EPSILON in flat:
            kept = {m for m in kept if self.longest[m] or self.kind[m] == TAG} or {EPSILON}
            if not has_empty:
                kept.add(EPSILON)
        if searched:
            kept = {m for m in kept if not self._has_suffix(m, searched)}
        return kept

    def _has_suffix(self, member: int, suffixes: set[int]) -> bool:
        kind, args = self.kind, self.args
        while kind[member] == CAT:
            member = args[member][1]
            if member in suffixes:
                return True
        return False

    def intersection(self, members: Iterable[int]) -> int:
        """Intersection of languages of all the text that is left, in normal form."""
        flat: set[int] = set()
        for member in members:
            flat.update(self.args[member] if self.kind[member] == AND else (member,))
        flat.discard(self.any_text)
        if len(flat) > 1:
            flat = self._simplify_and(flat)
        if len(flat) < 2:
            return flat.pop() if flat else self.any_text
        key = tuple(sorted(flat))
        found = self._ids.get((AND, key))
        if found is not None:
            return found
        shortest, longest = max(self.shortest[m] for m in key), min(self.longest[m] for m in key)
        if shortest > longest:
            return EMPTY
        conditions = {self.nullable[m] for m in key} - {EPSILON}
        condition = EPSILON if not conditions else EMPTY if EMPTY in conditions else CONDITIONAL
        return self._intern(AND, key, condition, shortest, longest, any(self.open[m] for m in key), False)

    def _simplify_and(self, flat: set[int]) -> set[int]:
        kind, args = self.kind, self.args
        negated = [m for m in flat if kind[m] == NOT]
        if EMPTY in flat or any(args[m][0] in flat for m in negated):
            return {EMPTY}
        if len(negated) > 1:  # De Morgan: one complement of a union has fewer states
            flat = flat.difference(negated) | {self.complement(self.union(args[m][0] for m in negated))}
        if EPSILON in flat and all(self.nullable[m] in (EMPTY, EPSILON) for m in flat):
            return {EPSILON if all(self.nullable[m] == EPSILON for m in flat) else EMPTY}
        runs = [m for m in flat if kind[m] == CHARS or (kind[m] == REP and kind[args[m][0]] == CHARS)]
        if len(runs) > 1:  # [ab]{2,5} and [bc]{3,9} have [b]{3,5} in common
            guard, least, most = self.alphabet.full, 0, INFINITE
            for m in runs:
                body, low, high = args[m] if kind[m] == REP else (m, 1, 1)
                guard, least, most = guard & args[body][0], max(least, low), min(most, high)
            run = self.repeat(self.chars(guard), least, most) if least <= most else EMPTY
            flat = flat.difference(runs) | ({run} if run != self.any_text else set())
        return {EMPTY} if EMPTY in flat else flat

    def complement(self, body: int) -> int:
        """All the text that is left is not in the body."""
        if self.kind[body] == NOT:
            return self.args[body][0]
        if body == EMPTY:
            return self.any_text
        if body == EPSILON:
            return self.repeat(self.any_char, 1, INFINITE)
        if self.kind[body] == REP and self.args[body][0] == self.any_char:
            _, least, most = self.args[body]
            below = self.repeat(self.any_char, 0, least - 1) if least else EMPTY
            above = self.repeat(self.any_char, most + 1, INFINITE) if most < INFINITE else EMPTY
            return self.union((below, above))
        condition = {EMPTY: EPSILON, EPSILON: EMPTY}.get(self.nullable[body], CONDITIONAL)
        sure = self.longest[body] < INFINITE or self.shortest[body] > 0
        shortest = 0 if condition != EMPTY else 1
        return self._intern(NOT, (body,), condition, shortest, INFINITE, self.open[body], sure)

    def ahead(self, language: int) -> int:
        """Nothing is read; all the text that is left is in the language."""
        if language in (EMPTY, self.any_text):
            return EMPTY if language == EMPTY else EPSILON
        return self._zero_width(AHEAD, (language,))

    def behind(self, language: int) -> int:
        """Nothing is read; the text read since this term was made is in the language."""
        if language in (EMPTY, self.any_text):
            return EMPTY if language == EMPTY else EPSILON
        return self._zero_width(BEHIND, (language,))

    def _zero_width(self, kind: int, args: tuple[int, ...]) -> int:
        term = self._intern(kind, args, EMPTY, 0, 0, True, False)
        self.nullable[term] = term
        return term

    def scope(self, body: int) -> int:
        """The body with its look-around resolved at its own ends."""
        if not self.open[body]:
            return body
        kind, args = self.kind[body], self.args[body]
        if kind == OR:
            return self.union([self.scope(m) for m in args])
        if kind == AND:
            return self.intersection([self.scope(m) for m in args])
        if kind == NOT:
            return self.complement(self.scope(args[0]))
        if kind in (AHEAD, BEHIND):
            return EPSILON if self.accepts(body) else EMPTY
        if kind == CAT and self.kind[args[0]] == AHEAD:
            return self.intersection((self.scope(self.args[args[0]][0]), self.scope(args[1])))
        if kind == CAT and self.kind[args[0]] == BEHIND:
            return self.scope(args[1]) if self.accepts(args[0]) else EMPTY
        has_empty = EPSILON if self.accepts(body) else EMPTY
        return self._intern(SCOPE, (body,), has_empty, self.shortest[body], self.longest[body], False, False)

    def tag(self, label: int, body: int) -> int:
        """The body under a label."""
        if body == EMPTY:
            return EMPTY
        return self._intern(
            TAG, (label, body), self.nullable[body], self.shortest[body], self.longest[body], False, self.sure[body]
        )

    def leaf(self, machine: int, state: Hashable, accepts: bool, shortest: int) -> int:
        """A state of a machine."""
        found = self._leaf_ids.get((machine, state))
        if found is None:
            self.leaves.append((machine, state))
            args = (len(self.leaves) - 1,)
            found = self._intern(LEAF, args, EPSILON if accepts else EMPTY, shortest, INFINITE, False, True)
            self._leaf_ids[machine, state] = found
        return found

    def json(self, args: tuple[int, ...], shortest: int, sure: bool) -> int:
        """A state inside a JSON string; see `json_escapes`."""
        return self._intern(JSON, args, EMPTY, shortest, INFINITE, False, sure)

    def accepts(self, term: int) -> bool:
        """Where the text ends here, it is a word."""
        has_empty = self.nullable[term]
        if has_empty in (EMPTY, EPSILON):
            return has_empty == EPSILON
        kind, args = self.kind[term], self.args[term]
        if kind == OR:
            return any(self.accepts(m) for m in args)
        if kind in (CAT, AND):
            return all(self.accepts(m) for m in args)
        if kind == NOT:
            return not self.accepts(args[0])
        return self.accepts(args[-1] if kind == TAG else args[0])  # REP, AHEAD, BEHIND

    def _intern(
        self, kind: int, args: tuple[int, ...], nullable: int, shortest: int, longest: int, is_open: bool, sure: bool
    ) -> int:
        found = self._ids.get((kind, args))
        if found is not None:
            return found
        self.allowance -= 1
        if self.allowance < 0:
            raise WorkExhaustedError
        term = len(self.kind)
        self._ids[kind, args] = term
        self.kind.append(kind)
        self.args.append(args)
        self.nullable.append(nullable)
        self.shortest.append(shortest)
        self.longest.append(longest)
        self.open.append(is_open)
        self.sure.append(sure)
        return term


def _counts_are_contiguous(inner: tuple[int, ...], least: int, most: int) -> bool:
    """``(x{a,b}){c,d} = x{ac,bd}`` where the intervals [ka, kb] for k = c to d leave no gap."""
    _, low, high = inner
    if least == most:
        return True
    if least == 0:
        return low <= 1
    return high == INFINITE or (least + 1) * low <= least * high + 1


def _joined(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for least, most in sorted(intervals):
        if joined and least <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], most))
        else:
            joined.append((least, most))
    return joined
