"""Terms: expressions over minterms, interned so that equal terms are one small integer.

Terms that the rules of this module and of `normal_form` make alike are the same integer; a state of an automaton is a
term. The rules are the similarity rules of Owens, Reppy and Turon (2009, section 4.1) and some that keep sets of
counters small. Invariant: rules change how a language is written, never the language.

Zero-width terms: AHEAD(L) holds where all the text that is left is in L; BEHIND(L) holds where the text read since the
term was made is in L, and L is derived along with every character read. SCOPE(x) confines both to x. A term is open if
they reach out of it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from grammars.regular import normal_form
from grammars.regular.alphabet import Alphabet
from grammars.regular.kinds import (
    AHEAD,
    AND,
    BEHIND,
    CAT,
    CHARS,
    CONDITIONAL,
    EMPTY,
    EPSILON,
    INFINITE,
    JSON,
    LEAF,
    NOT,
    OR,
    REP,
    SCOPE,
    TAG,
)
from grammars.regular.machine import Machine

Facts = tuple[int, int, int, bool, bool]
"""A term's entries in `Terms.nullable`, `shortest`, `longest`, `open` and `sure`."""


class WorkExhaustedError(Exception):
    """More work was done than the allowance of a table."""


class Terms:
    """The table of terms and their normalising constructors.

    Attributes:
        kind, args: of each term; see `kinds`.
        nullable: EMPTY if the language lacks the empty text; EPSILON if it has it; CONDITIONAL if `accepts` must tell
        (never
            for the head of a CAT); else the zero-width term under which it has it.
        shortest, longest: bounds of the code points of a word, at least and at most.
        open: look-around in it reaches out of it.
        sure: the language is not empty, by construction.
        leaves: machine and state of each LEAF.
        allowance: work that may still be done, in terms.
    """

    def __init__(self, alphabet: Alphabet, *, sure_leaves: bool = True) -> None:
        """``sure_leaves``: the alphabet has every character that machines ask for."""
        self.alphabet = alphabet
        self._sure_leaves = sure_leaves
        self.kind: list[int] = []
        self.args: list[tuple[int, ...]] = []
        self.nullable: list[int] = []
        self.shortest: list[int] = []
        self.longest: list[int] = []
        self.open: list[bool] = []
        self.sure: list[bool] = []
        self.leaves: list[tuple[int, Hashable]] = []
        self.allowance = INFINITE
        self._ids: dict[tuple[int, tuple[int, ...]], int] = {}
        self._leaf_ids: dict[tuple[int, Hashable], int] = {}
        self._intern(CHARS, (0,), (EMPTY, INFINITE, 0, False, False))
        self._intern(REP, (EMPTY, 0, 0), (EPSILON, 0, 0, False, True))
        self.any_char = self.chars(alphabet.full)
        self.any_text = self.repeat(self.any_char, 0, INFINITE)

    def chars(self, guard: int) -> int:
        """One character of a minterm of the guard."""
        return self._intern(CHARS, (guard,), (EMPTY, 1, 1, False, True)) if guard else EMPTY

    def cat(self, head: int, tail: int) -> int:
        """Concatenation, right-nested; a union at the head is multiplied out so that its members meet others."""
        kind = self.kind
        if head == EPSILON or tail == EMPTY:
            return tail
        if head == EMPTY or tail == EPSILON:
            return head
        if kind[head] == OR:
            return self.union([self.cat(member, tail) for member in self.args[head]])
        if kind[head] != CAT:
            return self._cons(head, tail)
        heads = []
        while kind[head] == CAT:
            first, head = self.args[head]
            heads.append(first)
        self.spend(len(heads))
        tail = self.cat(head, tail)  # the last of a list may be a union
        for first in reversed(heads):
            tail = self._cons(first, tail)
        return tail

    def followed(self, head: int, tail: int) -> int:
        """Concatenation that leaves a union at the head as it is: it is multiplied out where it is derived."""
        if self.kind[head] == OR and self.longest[head] and tail not in (EMPTY, EPSILON):
            return self._cons(head, tail)
        return self.cat(head, tail)

    def _cons(self, head: int, tail: int) -> int:
        kind, args = self.kind, self.args
        first, rest = args[tail] if kind[tail] == CAT else (tail, EPSILON)
        while kind[head] == REP or kind[first] == REP:
            merged = self._merge_counts(head, first)
            if merged < 0:
                break
            head, tail = merged, rest
            first, rest = args[tail] if kind[tail] == CAT else (tail, EPSILON)
        if tail == EPSILON:
            return head
        if kind[head] == AHEAD and kind[first] == AHEAD:
            return self.cat(self.ahead(self.intersection((args[head][0], args[first][0]))), rest)
        if kind[head] == AHEAD and kind[first] == BEHIND:
            return self._cons(first, self._cons(head, rest))
        if kind[head] == BEHIND and head == first:
            return tail
        if self.longest[head] == self.longest[tail] == 0:
            return self._zero_width(CAT, (head, tail))
        return self._intern(
            CAT,
            (head, tail),
            (
                self._both(self.nullable[head], self.nullable[tail]),
                min(self.shortest[head] + self.shortest[tail], INFINITE),
                min(self.longest[head] + self.longest[tail], INFINITE),
                self.open[head] or self.open[tail],
                self.sure[head] and self.sure[tail],
            ),
        )

    def _merge_counts(self, head: int, first: int) -> int:
        """``x{a,b}x{c,d} = x{a+c,b+d}``, where a bare x counts as x{1,1}; -1 where the bodies differ."""
        if EPSILON in (head, first):
            return -1
        body, least, most = self.args[head] if self.kind[head] == REP else (head, 1, 1)
        other, more_least, more_most = self.args[first] if self.kind[first] == REP else (first, 1, 1)
        return self.repeat(body, least + more_least, most + more_most) if body == other else -1

    def _both(self, left: int, right: int) -> int:
        if left == EPSILON or right == EMPTY:
            return right
        if right == EPSILON or left == EMPTY:
            return left
        return CONDITIONAL if CONDITIONAL in (left, right) else self.cat(left, right)

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
        if self.kind[body] == REP and normal_form.leaves_no_gap(self.args[body], least, most):
            inner, low, high = self.args[body]
            return self.repeat(inner, low * least, min(high * most, INFINITE))
        return self._intern(
            REP,
            (body, least, most),
            (
                EPSILON if least == 0 else self.nullable[body],
                min(self.shortest[body] * least, INFINITE),
                min(self.longest[body] * most, INFINITE),
                self.open[body],
                least == 0 or self.sure[body],
            ),
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
            flat = normal_form.absorb(self, normal_form.merge_alternatives(self, flat))
        if len(flat) < 2:
            return flat.pop() if flat else EMPTY
        key = tuple(sorted(flat))
        found = self._ids.get((OR, key))
        if found is not None:
            return found
        longest = max(self.longest[m] for m in key)
        if longest == 0:
            return self._zero_width(OR, key)
        facts = (
            self._either({self.nullable[m] for m in key}),
            min(self.shortest[m] for m in key),
            longest,
            any(self.open[m] for m in key),
            any(self.sure[m] for m in key),
        )
        return self._intern(OR, key, facts)

    def _either(self, conditions: set[int]) -> int:
        if EPSILON in conditions:
            return EPSILON
        return CONDITIONAL if CONDITIONAL in conditions else self.union(conditions)

    def intersection(self, members: Iterable[int]) -> int:
        """Intersection of languages of all the text that is left, in normal form."""
        flat: set[int] = set()
        for member in members:
            flat.update(self.args[member] if self.kind[member] == AND else (member,))
        flat.discard(self.any_text)
        if len(flat) > 1:
            flat = normal_form.merge_conjuncts(self, flat)
        if len(flat) < 2:
            return flat.pop() if flat else self.any_text
        key = tuple(sorted(flat))
        shortest, longest = max(self.shortest[m] for m in key), min(self.longest[m] for m in key)
        if shortest > longest:
            return EMPTY
        conditions = {self.nullable[m] for m in key} - {EPSILON}
        nullable = EPSILON if not conditions else EMPTY if EMPTY in conditions else CONDITIONAL
        return self._intern(AND, key, (nullable, shortest, longest, any(self.open[m] for m in key), False))

    def complement(self, body: int) -> int:
        """All the text that is left is not in the body."""
        if self.kind[body] == NOT:
            return self.args[body][0]
        if body == EMPTY:
            return self.any_text
        if body == EPSILON or (self.kind[body] == REP and self.args[body][0] == self.any_char):
            return self._other_lengths(*self.args[body][1:])
        nullable = {EMPTY: EPSILON, EPSILON: EMPTY}.get(self.nullable[body], CONDITIONAL)
        sure = self.longest[body] < INFINITE or self.shortest[body] > 0
        return self._intern(NOT, (body,), (nullable, int(nullable == EMPTY), INFINITE, self.open[body], sure))

    def _other_lengths(self, least: int, most: int) -> int:
        below = self.repeat(self.any_char, 0, least - 1) if least else EMPTY
        above = self.repeat(self.any_char, most + 1, INFINITE) if most < INFINITE else EMPTY
        return self.union((below, above))

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
        term = self._intern(kind, args, (EMPTY, 0, 0, True, False))
        self.nullable[term] = term
        return term

    def scope(self, body: int) -> int:
        """The body with its look-around resolved at its own ends."""
        if not self.open[body]:
            return body
        kind, args = self.kind[body], self.args[body]
        if kind in (OR, AND):
            closed = [self.scope(m) for m in args]
            return self.union(closed) if kind == OR else self.intersection(closed)
        if kind == NOT:
            return self.complement(self.scope(args[0]))
        has_empty = EPSILON if self.accepts(body) else EMPTY
        if self.longest[body] == 0:
            return has_empty
        if kind == CAT and self.kind[args[0]] in (AHEAD, BEHIND):
            return self._scope_under(*args)
        return self._intern(SCOPE, (body,), (has_empty, self.shortest[body], self.longest[body], False, False))

    def _scope_under(self, condition: int, body: int) -> int:
        if self.kind[condition] == AHEAD:
            return self.intersection((self.scope(self.args[condition][0]), self.scope(body)))
        return self.scope(body) if self.accepts(condition) else EMPTY

    def tag(self, label: int, body: int) -> int:
        """The body under a label."""
        if body == EMPTY:
            return EMPTY
        # With no bound above, so that no rule takes a tagged empty text for one that could be dropped.
        facts = (self.nullable[body], self.shortest[body], INFINITE, False, self.sure[body])
        return self._intern(TAG, (label, body), facts)

    def leaf(self, index: int, machine: Machine, state: Hashable) -> int:
        """A state of the machine with some index; the empty text where nothing can follow."""
        key = (index, state)
        found = self._leaf_ids.get(key)
        if found is None:
            accepts = machine.accepts(state)
            if accepts and next(iter(machine.arcs(state)), None) is None:
                found = EPSILON
            else:
                is_sure = self._sure_leaves or accepts
                facts = (EPSILON if accepts else EMPTY, machine.shortest(state), INFINITE, False, is_sure)
                found = self._intern(LEAF, (len(self.leaves),), facts)
                self.leaves.append(key)
            self._leaf_ids[key] = found
        return found

    def json(self, args: tuple[int, ...], *, shortest: int, sure: bool) -> int:
        """A place inside a JSON string; see `json_escapes`."""
        return self._intern(JSON, args, (EMPTY, shortest, INFINITE, False, sure))

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
        return self.accepts(args[0])  # REP, AHEAD, BEHIND

    def spend(self, work: int) -> None:
        """Take work from the allowance. Raises WorkExhaustedError where too little is left."""
        self.allowance -= work
        if self.allowance < 0:
            raise WorkExhaustedError

    def _intern(self, kind: int, args: tuple[int, ...], facts: Facts) -> int:
        key = (kind, args)
        found = self._ids.get(key)
        if found is not None:
            return found
        self.spend(1)
        term = self._ids[key] = len(self.kind)
        self.kind.append(kind)
        self.args.append(args)
        nullable, shortest, longest, is_open, sure = facts
        self.nullable.append(nullable)
        self.shortest.append(shortest)
        self.longest.append(longest)
        self.open.append(is_open)
        self.sure.append(sure)
        return term
