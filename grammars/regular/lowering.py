"""Expressions to terms.

Invariant: the operands of intersections, complements, tags and JSON strings are closed, so that terms under AND, NOT,
TAG and JSON reach out of themselves only inside a look-ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeGuard

from decoding.errors import ConstraintError
from grammars.regular import json_escapes
from grammars.regular import nodes as n
from grammars.regular.alphabet import Alphabet
from grammars.regular.charset import ANY, CharSet
from grammars.regular.kinds import EMPTY, EPSILON, INFINITE
from grammars.regular.limits import RegularLimits
from grammars.regular.machine import Machine
from grammars.regular.terms import Terms
from grammars.regular.words import WordList

_WORDS_AS_LIST = 4
"""With more literal alternatives than this a union becomes a list of words."""


class Lowering:
    """Lowers one expression into a new table of terms."""

    def __init__(self, expression: n.Expression, limits: RegularLimits, field: str, characters: CharSet = ANY) -> None:
        """``characters``: those that texts may have raw.

        Raises ConstraintError, which names ``field``, where the expression is deeper or larger than allowed.
        """
        _check_size(expression, limits, field)
        order = n.walk(expression)
        self.machines: list[Machine] = []
        self._machine_of: dict[int, int] = {}
        for node in order:
            self._collect_machine(node)
        has_escapes = any(isinstance(node, n.JsonString) for node in order)
        self.terms = Terms(
            Alphabet(_classes(order, self.machines, characters), characters, has_escapes=has_escapes),
            sure_leaves=has_escapes or characters == ANY,
        )
        self.terms.allowance = limits.build_work
        self._lowered: dict[int, int] = {}
        by_class: dict[type[n.Expression], Callable[..., int]] = {
            n.Chars: self._chars,
            n.MachineLanguage: self._machine,
            n.Concat: self._concat,
            n.Union: self._union,
            n.Intersection: self._intersection,
            n.Complement: self._complement,
            n.Repeat: self._repeat,
            n.LookAhead: self._look_ahead,
            n.LookBehind: self._look_behind,
            n.Scope: self._closed,
            n.JsonString: self._json_string,
            n.Tagged: self._tagged,
        }
        for node in order:
            if not isinstance(node, n.Text):  # lowered where it is used: not inside a list of words
                self._lowered[id(node)] = by_class[type(node)](node)
        self.start = self.terms.scope(self._term(expression))

    def _collect_machine(self, node: n.Expression) -> None:
        machine: Machine | None = None
        if isinstance(node, n.MachineLanguage):
            machine = node.machine
        elif isinstance(node, n.Union):
            literals = {part.text for part in node.operands if _is_word(part)}
            machine = WordList(tuple(sorted(literals))) if len(literals) > _WORDS_AS_LIST else None
        if machine is not None:
            self._machine_of[id(node)] = len(self.machines)
            self.machines.append(machine)

    def _term(self, node: n.Expression) -> int:
        return self._text(node) if isinstance(node, n.Text) else self._lowered[id(node)]

    def _operands(self, node: n.Expression) -> list[int]:
        return [self._term(operand) for operand in node.operands]

    def _body(self, node: n.Expression) -> int:
        return self._term(node.operands[0])

    def _closed(self, node: n.Expression) -> int:
        return self.terms.scope(self._body(node))

    def _chars(self, node: n.Chars) -> int:
        return self.terms.chars(self.terms.alphabet.guard(node.charset))

    def _text(self, node: n.Text) -> int:
        terms = self.terms
        term = EPSILON
        for character in reversed(node.text):
            term = terms.cat(terms.chars(terms.alphabet.guard(CharSet.of(character))), term)
        return term

    def _machine(self, node: n.Expression) -> int:
        index = self._machine_of[id(node)]
        machine = self.machines[index]
        start = machine.start()
        return EMPTY if start is None else self.terms.leaf(index, machine, start)

    def _concat(self, node: n.Concat) -> int:
        term = EPSILON
        for operand in reversed(self._operands(node)):
            term = self.terms.followed(operand, term)
        return term

    def _union(self, node: n.Union) -> int:
        if id(node) not in self._machine_of:
            return self.terms.union(self._operands(node))
        others = [self._term(part) for part in node.operands if not _is_word(part)]
        return self.terms.union([*others, self._machine(node)])

    def _intersection(self, node: n.Intersection) -> int:
        return self.terms.intersection([self.terms.scope(operand) for operand in self._operands(node)])

    def _complement(self, node: n.Complement) -> int:
        return self.terms.complement(self._closed(node))

    def _repeat(self, node: n.Repeat) -> int:
        return self.terms.repeat(self._body(node), node.least, INFINITE if node.most is None else node.most)

    def _look_ahead(self, node: n.LookAhead) -> int:
        terms = self.terms
        language = terms.cat(self._body(node), terms.any_text)
        return terms.ahead(terms.complement(language) if node.negative else language)

    def _look_behind(self, node: n.LookBehind) -> int:
        terms = self.terms
        language = terms.scope(terms.cat(terms.any_text, self._body(node)))
        return terms.behind(terms.complement(language) if node.negative else language)

    def _json_string(self, node: n.JsonString) -> int:
        terms = self.terms
        spelling = json_escapes.CANONICAL if node.escapes == "canonical" else json_escapes.ANY_SPELLING
        quote = terms.chars(terms.alphabet.guard(CharSet.of('"')))
        return terms.cat(quote, json_escapes.body(terms, spelling, self._closed(node)))

    def _tagged(self, node: n.Tagged) -> int:
        return self.terms.tag(node.label, self._closed(node))


def _classes(order: list[n.Expression], machines: list[Machine], characters: CharSet) -> Iterable[CharSet]:
    """Every set of characters that the terms will mention."""
    for machine in machines:
        yield from machine.classes()
    texts: set[str] = set()
    for node in order:
        if isinstance(node, n.Chars):
            yield node.charset
        elif isinstance(node, n.Text):
            texts.update(node.text)
        elif isinstance(node, n.JsonString):
            yield from json_escapes.classes(characters)
    for character in texts:
        yield CharSet.of(character)


def _is_word(node: n.Expression) -> TypeGuard[n.Text]:
    return isinstance(node, n.Text) and len(node.text) > 1


def _check_size(expression: n.Expression, limits: RegularLimits, field: str) -> None:
    for count, what, limit in (
        (expression.depth, "levels of operators", limits.max_depth),
        (expression.size, "operators and leaves", limits.max_nodes),
    ):
        if count > limit:
            raise ConstraintError(field, f"{count} {what}; at most {limit} are allowed")
