r"""Lark's notation to rules.

The lark package reads the text, resolves imports and templates, and takes apart EBNF; what its terminals mean is ours:
a terminal takes the longest text it can, among all that may stand there (so that ``NAME`` takes "iffy" whole where
``"if"`` may stand too), and of terminals that take the same text the one of the highest priority is meant, or any where
priorities are equal. A terminal with a lazy count (``/".*?"/``) takes the shortest text instead. Terminals that are
ignored may stand before, between and after all others.

Invariant: lark reads no file but its own `common` terminals, and every rule that is returned has a text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lark import Lark
from lark.exceptions import LarkError, VisitError
from lark.grammar import Rule
from lark.lexer import PatternStr, TerminalDef

from decoding.errors import ConstraintError
from grammars.context_free.checks import check_productive, check_start
from grammars.context_free.elimination import plain
from grammars.context_free.syntax import FIELD, Choice, Node, Reference, Repeat, Sequence, Syntax, Terminal
from grammars.regular import expressions as e
from grammars.regular import nodes as n
from grammars.regular.automaton import build
from grammars.regular.regex.compile import compile_regex

MAX_NESTING = 50

_QUOTED_OR_BRACKET = re.compile(r'"(?:[^"\\\n]|\\.)*+"?|//[^\n]*|#[^\n]*|/(?:[^/\\]|\\.)*+/?|[()\[\]{}]', re.DOTALL)
_IMPORT = re.compile(r"^\s*%import(?!\s+common[.\s])", re.MULTILINE)
_RULE = re.compile(r"^[ \t]*[?!]{0,2}(_?[a-z][a-z0-9_]*)[ \t]*(?:\.[ \t]*-?\d+[ \t]*)?[{:]", re.MULTILINE)
_LAZY = re.compile(r"\\.|\[\^?\]?(?:[^\]\\]|\\.)*+\]|([*+?}]\?)", re.DOTALL)
_START, _SKIP = "%start", "%skip"
"""Rules of ours; no name in a text has a percent sign."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LarkSyntax:
    """Rules in which ignored terminals stand wherever they may; ``skipped`` are the places where they do."""

    syntax: Syntax
    skipped: frozenset[Terminal]


def read_lark(text: str, *, start: str = "start") -> LarkSyntax:
    """The rules of ``text``. Raises ConstraintError."""
    _check_text(text)
    lines = {found[1]: text.count("\n", 0, found.start(1)) + 1 for found in reversed(list(_RULE.finditer(text)))}
    check_start(start, lines)
    try:
        read = Lark(text, start=start, parser="earley", maybe_placeholders=False)
    except LarkError as error:
        if isinstance(error, VisitError) and isinstance(error.orig_exc, (MemoryError, RecursionError)):
            raise error.orig_exc from None
        raise ConstraintError(FIELD, _told(error)) from error
    except (MemoryError, RecursionError):
        raise
    except Exception as error:  # it checks few things, and lets through what its parts raise
        raise ConstraintError(FIELD, f"is not understood by lark ({type(error).__name__}: {error})") from error
    terminals = _Terminals(list(read.terminals))
    rules = _rules(read.rules, terminals)
    check_productive(Syntax(rules=rules, start=start), lines)
    skips = tuple(terminals.at_new_place(str(name)) for name in read.ignore_tokens)
    if skips:
        rules[_SKIP] = Repeat(body=Choice(branches=skips), least=0, most=None)
        rules = {name: _with_skips(body) for name, body in rules.items()} | {_SKIP: rules[_SKIP]}
        rules[_START] = Sequence(parts=(Reference(name=_SKIP), Reference(name=start)))
    syntax = Syntax(rules=rules, start=_START if skips else start)
    return LarkSyntax(syntax=syntax, skipped=frozenset(skips))


def _check_text(text: str) -> None:
    if found := _IMPORT.search(text):
        line = text.count("\n", 0, found.end()) + 1
        raise ConstraintError(FIELD, f"imports more than terminals of common (line {line}); write it out")
    depth = 0
    for found in _QUOTED_OR_BRACKET.finditer(text):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(found[0], 0)
        if depth > MAX_NESTING:
            line = text.count("\n", 0, found.start()) + 1
            raise ConstraintError(FIELD, f"nests brackets more than {MAX_NESTING} deep (line {line})")


def _told(error: LarkError) -> str:
    """Lark's message as one line, without its name for a text that has none."""
    match error.args:
        case (str(), TerminalDef() as definition):
            return f"terminal {_shown(definition)}: matches the empty text; let rules say what may be left out"
        case _:
            return "cannot be read: " + " ".join(str(error).split()).replace(" in <string>", "")


class _Terminals:
    """Expressions of terminals, each computed on first use."""

    def __init__(self, definitions: list[TerminalDef]) -> None:
        self._definitions = {definition.name: definition for definition in definitions}
        self._own: dict[str, e.Expression] = {}
        self._meant: dict[str, e.Expression] = {}

    def at_new_place(self, name: str) -> Terminal:
        """A terminal, to be written at one place."""
        if name not in self._meant:
            if name not in self._definitions:
                raise ConstraintError(FIELD, f"uses the terminal {name}, but does not define it")
            self._meant[name] = self._without_higher(name)
        return Terminal(expression=self._meant[name], name=_shown(self._definitions[name]))

    def _without_higher(self, name: str) -> e.Expression:
        """The texts of a terminal that are not those of one with a higher priority."""
        expression = self._expression(name)
        priority = self._definitions[name].priority
        names = [other.name for other in self._definitions.values() if other.priority > priority]
        higher = [other for other in map(self._expression, names) if not _is_empty(e.intersection(expression, other))]
        rest = e.difference(expression, e.union(*higher)) if higher else expression
        if _is_empty(rest):
            shown = _shown(self._definitions[name])
            raise ConstraintError(FIELD, f"terminal {shown}: matches no text, or none that no higher priority matches")
        return rest

    def _expression(self, name: str) -> e.Expression:
        if name not in self._own:
            self._own[name] = _language(self._definitions[name])
        return self._own[name]


def _language(definition: TerminalDef) -> e.Expression:
    pattern = definition.pattern
    if isinstance(pattern, PatternStr) and not pattern.flags:
        return e.literal(pattern.value)
    source = re.escape(pattern.value) if isinstance(pattern, PatternStr) else pattern.value
    try:
        expression = compile_regex(source, flags="".join(sorted(set(pattern.flags) - {"u"})), field=FIELD)
        is_lazy = any(found[1] for found in _LAZY.finditer(source))
        looks_around = any(isinstance(node, (n.Scope, n.LookAhead, n.LookBehind)) for node in n.walk(expression))
        return plain(expression, shortest=is_lazy, field=FIELD) if is_lazy or looks_around else expression
    except ConstraintError as error:
        raise type(error)(FIELD, f"terminal {_shown(definition)}: {error.bare_message}") from error


def _is_empty(expression: e.Expression) -> bool:
    return build(expression, field=FIELD).is_empty


def _shown(definition: TerminalDef) -> str:
    pattern = definition.pattern
    if isinstance(pattern, PatternStr):
        return f'"{pattern.value}"'
    return f"/{pattern.value}/" if definition.name.startswith("__") else str(definition.name)


def _rules(read: list[Rule], terminals: _Terminals) -> dict[str, Node]:
    branches: dict[str, list[Node]] = {}
    for rule in read:
        parts = tuple(
            terminals.at_new_place(str(symbol.name)) if symbol.is_term else Reference(name=str(symbol.name))
            for symbol in rule.expansion
        )
        branches.setdefault(str(rule.origin.name), []).append(Sequence(parts=parts))
    return {name: Choice(branches=tuple(alternatives)) for name, alternatives in branches.items()}


def _with_skips(node: Node) -> Node:
    match node:
        case Choice(branches=branches):
            return Choice(branches=tuple(map(_with_skips, branches)))
        case Sequence(parts=parts):
            return Sequence(parts=tuple(map(_with_skips, parts)))
        case Terminal():
            return Sequence(parts=(node, Reference(name=_SKIP)))
        case _:
            return node
