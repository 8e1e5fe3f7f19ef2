"""Expressions to terms.

Invariant: every operand of a public operator but concatenation, union and repetition is a scope of its own, so that terms
under AND, NOT, TAG and JSON reach out of themselves only inside a look-ahead.
"""

from __future__ import annotations

from collections.abc import Iterable

from decoding.errors import ConstraintError
from grammars.regular import expressions as e
from grammars.regular import json_escapes
from grammars.regular.alphabet import Alphabet
from grammars.regular.charset import CharSet
from grammars.regular.derivatives import leaf
from grammars.regular.machine import Machine
from grammars.regular.terms import EPSILON, INFINITE, Terms
from grammars.regular.words import WordList

_WORDS_AS_LIST = 4


def nodes(expression: e.Expression) -> list[e.Expression]:
    """Every distinct node, operands before the nodes that use them."""
    order: list[e.Expression] = []
    seen: set[int] = set()
    stack: list[tuple[e.Expression, bool]] = [(expression, False)]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack += ((child, False) for child in children(node))
    return order


def children(node: e.Expression) -> tuple[e.Expression, ...]:
    """The operands of a node."""
    if isinstance(node, (e.Concat, e.Union, e.Intersection)):
        return node.parts
    body = getattr(node, "body", None)
    return () if body is None else (body,)


class Lowering:
    """Lowers one expression into a new table of terms."""

    def __init__(self, expression: e.Expression) -> None:
        self._order = nodes(expression)
        self.machines: list[Machine] = []
        self._machine_of: dict[int, int] = {}
        for node in self._order:
            if isinstance(node, e.FromMachine):
                self._add_machine(node, node.machine)
            elif isinstance(node, e.Union):
                literals = [part.text for part in node.parts if isinstance(part, e.Literal) and len(part.text) > 1]
                if len(literals) > _WORDS_AS_LIST:
                    self._add_machine(node, WordList(tuple(sorted(set(literals)))))
        self.terms = Terms(Alphabet(self._classes()))
        lowered: dict[int, int] = {}
        for node in self._order:
            lowered[id(node)] = self._lower(node, lowered)
        self.start = self.terms.scope(lowered[id(expression)])

    def _add_machine(self, node: e.Expression, machine: Machine) -> None:
        self._machine_of[id(node)] = len(self.machines)
        self.machines.append(machine)

    def _classes(self) -> Iterable[CharSet]:
        for machine in self.machines:
            yield from machine.classes()
        for node in self._order:
            if isinstance(node, e.Chars):
                yield node.charset
            elif isinstance(node, e.Literal):
                for character in set(node.text):
                    yield CharSet.of(character)
            elif isinstance(node, e.JsonString):
                yield from json_escapes.CLASSES

    def _lower(self, node: e.Expression, lowered: dict[int, int]) -> int:
        terms = self.terms
        operands = [lowered[id(child)] for child in children(node)]
        if isinstance(node, e.Chars):
            return terms.chars(terms.alphabet.guard(node.charset))
        if isinstance(node, e.Literal):
            return self._literal(node.text)
        if isinstance(node, e.FromMachine):
            return self._machine(node)
        if isinstance(node, e.Concat):
            return self._concat(operands)
        if isinstance(node, e.Union):
            return self._union(node, operands)
        if isinstance(node, e.Intersection):
            return terms.intersection([terms.scope(m) for m in operands])
        if isinstance(node, e.Repeat):
            return terms.repeat(operands[0], node.least, INFINITE if node.most is None else node.most)
        if isinstance(node, (e.LookAhead, e.LookBehind)):
            return self._look(node, operands[0])
        closed = terms.scope(operands[0])
        if isinstance(node, e.Complement):
            return terms.complement(closed)
        if isinstance(node, e.Tagged):
            return terms.tag(node.label, closed)
        if isinstance(node, e.JsonString):
            return self._json(node, closed)
        assert isinstance(node, e.Scope)
        return closed

    def _literal(self, text: str) -> int:
        terms = self.terms
        term = EPSILON
        for character in reversed(text):
            term = terms.cat(terms.chars(terms.alphabet.guard(CharSet.of(character))), term)
        return term

    def _machine(self, node: e.Expression) -> int:
        index = self._machine_of[id(node)]
        machine = self.machines[index]
        start = machine.start()
        return self.terms.chars(0) if start is None else leaf(self.terms, machine, index, start)

    def _concat(self, operands: list[int]) -> int:
        term = EPSILON
        for operand in reversed(operands):
            term = self.terms.cat(operand, term)
        return term

    def _union(self, node: e.Union, operands: list[int]) -> int:
        if id(node) not in self._machine_of:
            return self.terms.union(operands)
        others = [
            term
            for part, term in zip(node.parts, operands, strict=True)
            if not (isinstance(part, e.Literal) and len(part.text) > 1)
        ]
        return self.terms.union([*others, self._machine(node)])

    def _look(self, node: e.LookAhead | e.LookBehind, body: int) -> int:
        terms = self.terms
        ahead = isinstance(node, e.LookAhead)
        language = terms.cat(body, terms.any_text) if ahead else terms.scope(terms.cat(terms.any_text, body))
        if node.negative:
            language = terms.complement(language)
        return terms.ahead(language) if ahead else terms.behind(language)

    def _json(self, node: e.JsonString, text: int) -> int:
        terms = self.terms
        spelling = json_escapes.CANONICAL if node.escapes == "canonical" else json_escapes.ANY_SPELLING
        quote = terms.chars(terms.alphabet.guard(CharSet.of('"')))
        return terms.cat(quote, json_escapes.body(terms, spelling, text))


def check_size(expression: e.Expression, max_depth: int, max_nodes: int) -> None:
    """Raise ConstraintError where an expression is deeper or larger than allowed."""
    if expression.depth > max_depth:
        raise ConstraintError("expression", f"{expression.depth} levels of operators; at most {max_depth} are allowed")
    if expression.size > max_nodes:
        raise ConstraintError("expression", f"{expression.size} operators and leaves; at most {max_nodes} are allowed")
