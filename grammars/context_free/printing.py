r"""Rules as text that llguidance compiles.

Its notation resembles Lark's; what is used of it: rules ``r0: r1 T0{2,3} | ""``, terminals ``T0: /regex/`` of Rust's
regex syntax without look-around, and over them ``&``, ``~`` and parentheses. Source: docs/syntax.md of llguidance.

Invariant: every character of a caller's text that gets here is written as an escape or as itself where it is a letter
or a digit, so that nothing of it is read as notation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from decoding.errors import ConstraintError
from grammars.context_free.syntax import FIELD, Choice, Node, Reference, Repeat, Sequence, Syntax, Terminal
from grammars.regular import expressions as e
from grammars.regular import nodes as n
from grammars.regular.charset import CharSet

OPTIONS = '%llguidance {"no_forcing": true}\n'
"""Without it, masks leave out every token but one where the text is forced."""
MAX_DEPTH = 400
"""Rules that llguidance's compiler enters one inside the other, at about 3 KB of stack each. Past its stack it ends the
process, and a thread can have as little as 2 MB."""
_ANY_TEXT = "/(?s:.*)/"
_NAME = re.compile(r"[ri]\d+")


def print_syntax(syntax: Syntax) -> str:
    """The text of a syntax all of whose rules are reachable."""
    return _Printer(syntax).text()


def print_language(expression: e.Expression) -> str:
    """The text of a grammar of one terminal, or of the empty text beside it."""
    return f"{OPTIONS}start: T0\nT0: {_terminal(expression)}\n"


def plain_regex(expression: e.Expression) -> str | None:
    r"""The expression with groups, ``|``, counts and explicit classes alone, or None where it takes more.

    Characters other than ASCII letters and digits are ``\u{...}``, so that most dialects read it alike.
    """
    return _regex(expression)


class _Printer:
    def __init__(self, syntax: Syntax) -> None:
        self._syntax = syntax
        self._names = {name: f"r{number}" for number, name in enumerate(syntax.rules)}
        self._rules: dict[str, str] = {}
        self._terminals: dict[str, str] = {}
        self._inner: dict[str, str] = {}
        """Texts of rules that have no name in the syntax, and the names that they get."""

    def text(self) -> str:
        for name, body in self._syntax.rules.items():
            self._rules[self._names[name]] = self._alternatives(body)
        start = self._names[self._syntax.start]
        _check_depth(self._rules, start)
        rules = [f"{name}: {text}" for name, text in self._rules.items()]
        terminals = [f"{name}: {text}" for text, name in self._terminals.items()]
        return OPTIONS + "\n".join([f"start: {start}", *rules, *terminals]) + "\n"

    def _alternatives(self, body: Node) -> str:
        branches = body.branches if isinstance(body, Choice) else (body,)
        return " | ".join(map(self._sequence, branches))

    def _sequence(self, node: Node) -> str:
        parts = node.parts if isinstance(node, Sequence) else (node,)
        return " ".join(map(self._atom, parts)) or '""'

    def _atom(self, node: Node) -> str:
        """A name with its counts; rules of their own keep parentheses, whose depth llguidance bounds, out."""
        match node:
            case Terminal(expression=expression):
                text = _terminal(expression)
                return self._terminals.setdefault(text, f"T{len(self._terminals)}")
            case Reference(name=name):
                return self._names[name]
            case Repeat(body=body, least=least, most=most):
                inner = self._rule_of_its_own(body) if isinstance(body, Repeat) else self._atom(body)
                return inner + _counts(least, most)
            case _:
                return self._rule_of_its_own(node)

    def _rule_of_its_own(self, node: Node) -> str:
        text = self._alternatives(node)
        if text not in self._inner:
            self._inner[text] = f"i{len(self._inner)}"
            self._rules[self._inner[text]] = text
        return self._inner[text]


def _check_depth(rules: Mapping[str, str], start: str) -> None:
    """Raise ConstraintError where following references as llguidance does, depth first, goes too deep for its stack."""
    for order in (iter, reversed):
        entered = {start}
        path = [iter(_NAME.findall(rules[start]))]
        while path:
            if len(path) > MAX_DEPTH:
                raise ConstraintError(FIELD, f"refers from rule to rule more than {MAX_DEPTH} deep; join some of them")
            name = next((name for name in path[-1] if name not in entered), None)
            if name is None:
                path.pop()
            else:
                entered.add(name)
                path.append(iter([*order(_NAME.findall(rules[name]))]))


def _counts(least: int, most: int | None) -> str:
    match least, most:
        case 0, None:
            return "*"
        case 1, None:
            return "+"
        case 0, 1:
            return "?"
        case _:
            return f"{{{least},{'' if most is None else most}}}"


def _terminal(expression: e.Expression) -> str:
    regex = _regex(expression)
    if regex is not None:
        return f"/{regex}/"
    match expression:
        case n.Intersection(operands=operands):
            return " & ".join(f"({_terminal(operand)})" for operand in operands)
        case n.Complement(operands=(body,)):
            return f"{_ANY_TEXT} & ~({_terminal(body)})"
        case n.Union(operands=operands):
            return " | ".join(f"({_terminal(operand)})" for operand in operands)
        case n.Concat(operands=operands):
            return " ".join(f"({_terminal(operand)})" for operand in operands)
        case n.Repeat(operands=(body,), least=least, most=most):
            return f"({_terminal(body)}){_counts(least, most)}"
        case _:
            raise ConstraintError(FIELD, "has look-around inside a larger terminal; write it without")


def _regex(expression: e.Expression) -> str | None:
    """The regular expression in Rust's syntax, or None where it takes operators that this lacks."""
    match expression:
        case n.Chars(charset=charset):
            return _class(charset)
        case n.Text(text=text):
            return "".join(map(_character, text)) or "(?:)"
        case n.Concat(operands=operands):
            return _joined(operands, "")
        case n.Union(operands=operands):
            return _joined(operands, "|")
        case n.Repeat(operands=(body,), least=least, most=most):
            inner = _regex(body)
            return None if inner is None else f"(?:{inner}){_counts(least, most)}"
        case _:
            return None


def _joined(operands: tuple[e.Expression, ...], separator: str) -> str | None:
    inner = [_regex(operand) for operand in operands]
    known = [regex for regex in inner if regex is not None]
    return separator.join(f"(?:{regex})" for regex in known) if len(known) == len(inner) else None


def _class(charset: CharSet) -> str:
    spans = (
        _character(chr(first)) if first == last else f"{_character(chr(first))}-{_character(chr(last))}"
        for first, last in charset.ranges()
    )
    return f"[{''.join(spans)}]"


def _character(character: str) -> str:
    is_plain = character.isascii() and character.isalnum()
    return character if is_plain else f"\\u{{{ord(character):X}}}"
