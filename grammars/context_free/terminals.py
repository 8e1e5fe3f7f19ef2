"""Which parts of scannerless rules become terminals.

llguidance splits a text into terminals, always taking the longest, before it parses; GBNF knows no terminals, every
reading of the characters counts. Large terminals make masks fast, so each regular part is tried as one terminal, and
broken into smaller ones where taking the longest word would lose a reading. Single characters never do: no character is
the beginning of another in UTF-8.

Invariant: the texts stay the same, whatever is broken.
"""

from __future__ import annotations

from collections.abc import Iterable

from grammars.context_free.syntax import (
    FIELD,
    Choice,
    Node,
    Reference,
    Repeat,
    Sequence,
    Syntax,
    Terminal,
    parts_of,
    reachable,
    references,
    walk,
)
from grammars.regular import expressions as e
from grammars.regular import nodes as n
from grammars.regular.automaton import build

MAX_SIZE = 2_000
"""Operators and leaves of one terminal, as a tree."""
MAX_DEPTH = 80


class TerminalChoice:
    """Rules in whose place others with larger terminals can stand, until parts are broken."""

    def __init__(self, syntax: Syntax) -> None:
        self._rules = reachable(syntax)
        self._start = syntax.start
        self._broken: set[Node] = set()
        self._regular: dict[Node, e.Expression] = {}
        for name in _definitions_first(self._rules):
            for node in reversed(walk(self._rules[name])):
                self._note(node)
        self._origin: dict[Terminal, Node] = {}

    def syntax(self) -> Syntax:
        """The rules as they are now; only those that can be reached from the start."""
        self._origin = {}
        rules = {name: self._lowered(body) for name, body in self._rules.items()}
        lowered = Syntax(rules=rules, start=self._start)
        return Syntax(rules=reachable(lowered), start=self._start)

    def break_up(self, terminals: Iterable[Terminal]) -> None:
        """Make smaller ones of terminals that `syntax` gave out; none of a single character may be among them."""
        for terminal in terminals:
            self._break(self._origin[terminal])

    def break_all(self) -> None:
        """Make every character a terminal."""
        for body in self._rules.values():
            self._broken.update(walk(body))

    def _break(self, node: Node) -> None:
        assert not isinstance(node, Terminal) or not _is_one_character(node.expression)
        self._broken.add(node)
        if isinstance(node, Reference):
            body = self._rules[node.name]
            if body not in self._broken and not _is_character(body):
                self._break(body)

    def _note(self, node: Node) -> None:
        """Remember the language of a node, where it is regular and small."""
        match node:
            case Terminal(expression=expression):
                found: e.Expression | None = expression
            case Reference(name=name):
                found = self._regular.get(self._rules[name])
            case _:
                parts = [self._regular.get(part) for part in parts_of(node)]
                known = [part for part in parts if part is not None]
                found = _combined(node, known) if len(known) == len(parts) else None
        if found is not None and found.size <= MAX_SIZE and found.depth <= MAX_DEPTH:
            self._regular[node] = found

    def _lowered(self, node: Node) -> Node:
        expression = self._regular.get(node)
        if expression is not None and (node not in self._broken or _is_one_character(expression)):
            return self._terminal(expression, node)
        match node:
            case Terminal(expression=n.Text(text=text)):
                return Sequence(parts=tuple(self._terminal(e.literal(character), node) for character in text))
            case Sequence(parts=parts):
                is_broken = node in self._broken
                return Sequence(parts=tuple(map(self._lowered, parts) if is_broken else self._runs(parts, node)))
            case Choice(branches=branches):
                return Choice(branches=tuple(map(self._lowered, branches)))
            case Repeat(body=body, least=least, most=most):
                return Repeat(body=self._lowered(body), least=least, most=most)
            case _:
                return node

    def _runs(self, parts: Iterable[Node], whole: Sequence) -> list[Node]:
        """The parts, neighbours that are regular joined."""
        joined: list[Node] = []
        run: list[Node] = []

        def end_run() -> None:
            if len(run) > 1:
                expression = e.concat(*(self._regular[part] for part in run))
                joined.append(self._terminal(expression, whole))
            else:
                joined.extend(map(self._lowered, run))
            run.clear()

        for part in parts:
            if part in self._regular and part not in self._broken:
                run.append(part)
            else:
                end_run()
                joined.append(self._lowered(part))
        end_run()
        return joined

    def _terminal(self, expression: e.Expression, origin: Node) -> Node:
        """A terminal without the empty text, which llguidance's lexer has no place for, and the empty text beside."""
        if isinstance(expression, (n.Chars, n.Text)) and expression is not e.EPSILON:
            return self._given_out(expression, origin)
        automaton = build(expression, field=FIELD)
        if not automaton.accepting(automaton.start):
            return self._given_out(expression, origin)
        solid = non_empty(expression)
        if build(solid, field=FIELD).is_empty:
            return Sequence(parts=())
        return Repeat(body=self._given_out(solid, origin), least=0, most=1)

    def _given_out(self, expression: e.Expression, origin: Node) -> Terminal:
        terminal = Terminal(expression=expression, name=_name(origin))
        self._origin[terminal] = origin
        return terminal


def non_empty(expression: e.Expression) -> e.Expression:
    """The words but the empty one, without an intersection where the form allows it."""
    match expression:
        case n.Text(text=""):
            return e.EMPTY
        case n.Chars() | n.Text():
            return expression
        case n.Union(operands=operands):
            return e.union(*map(non_empty, operands))
        case n.Repeat(operands=(body,), least=0, most=most) if _is_solid(body):
            return e.repeat(body, 1, most)
        case n.Concat(operands=operands) if any(map(_is_solid, operands)):
            return expression
        case _:
            return e.intersection(expression, e.length(1))


def _is_solid(expression: e.Expression) -> bool:
    """Without the empty text, as can be seen at once."""
    return isinstance(expression, n.Chars) or (isinstance(expression, n.Text) and expression.text != "")


def _combined(node: Node, parts: list[e.Expression]) -> e.Expression | None:
    match node:
        case Sequence():
            return e.concat(*parts)
        case Choice():
            return e.union(*parts)
        case Repeat(least=least, most=most):
            return e.repeat(parts[0], least, most)
        case _:
            return None


def _is_one_character(expression: e.Expression) -> bool:
    return isinstance(expression, n.Chars) or (isinstance(expression, n.Text) and len(expression.text) == 1)


def _is_character(node: Node) -> bool:
    return isinstance(node, Terminal) and _is_one_character(node.expression)


def _name(node: Node) -> str:
    names = (found.name for found in walk(node) if isinstance(found, (Terminal, Reference)))
    return " ".join(names)


def _definitions_first(rules: dict[str, Node]) -> list[str]:
    """Rules that refer to none but earlier ones, then all others (those in a circle, and what uses them)."""
    users: dict[str, list[str]] = {name: [] for name in rules}
    missing: dict[str, int] = {}
    for name, body in rules.items():
        used = set(references(body))
        missing[name] = len(used)
        for other in used:
            users[other].append(name)
    order = [name for name in rules if not missing[name]]
    for name in order:  # grows as it goes
        for user in users[name]:
            missing[user] -= 1
            if not missing[user]:
                order.append(user)
    return order + [name for name in rules if missing[name]]
