r"""GBNF, the notation of llama.cpp, to rules.

    root  ::= "yes" | "no" ws      # a comment
    ws    ::= [ \t\n]*             # classes and negated classes, . for any character
    digit ::= [0-9]{1,3}           # * + ? {m} {m,} {m,n}
    name  ::= ( [a-z] | "\u00e9" ) # escapes \n \r \t \\ \" \[ \] \xHH \uHHHH \UHHHHHHHH

A rule ends with its line, unless a parenthesis is open or the line ends in ``::=`` or ``|``. Characters are Unicode
code points. Source: grammars/README.md and src/llama-grammar.cpp of llama.cpp.

Invariant: nesting is bounded before anything recursive sees the tree, and every error tells the line.
"""

from __future__ import annotations

import re
from typing import NoReturn

from decoding.errors import ConstraintError, UnsupportedConstraintError
from grammars.context_free.checks import check_names, check_productive, check_start
from grammars.context_free.syntax import FIELD, Choice, Node, Reference, Repeat, Sequence, Syntax, Terminal
from grammars.regular import expressions as e
from grammars.regular.charset import ANY, CharSet

MAX_NESTING = 50
MAX_COUNT = 2000
"""The largest count in braces; llama.cpp's own bound."""
MAX_COUNTS_IN_A_ROW = 3
"""More after one symbol, as in ``x*?+{2}``, say nothing new, and each is a level of nesting."""

_BLANK = re.compile(r"(?:[ \t\r]|#[^\n]*)*+")
_BLANK_OR_NEWLINE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*+")
_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_-]*+")
_COUNTS = re.compile(r"\{[ \t]*+(\d{1,9})[ \t]*+(?:(,)[ \t]*+(\d{1,9})?[ \t]*+)?\}")
_SIMPLE_COUNTS = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "[": "[", "]": "]", "-": "-", "^": "^", "/": "/"}
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
_LAST_CODE_POINT = 0x10FFFF


def read_gbnf(text: str, *, start: str = "root", max_nodes: int) -> Syntax:
    """The rules of ``text``. Raises ConstraintError, UnsupportedConstraintError for llama.cpp's token literals."""
    return _Reader(text, max_nodes).syntax(start)


class _Reader:
    def __init__(self, text: str, max_nodes: int) -> None:
        self._text = text
        self._at = 0
        self._nodes_left = max_nodes
        self._max_nodes = max_nodes

    def syntax(self, start: str) -> Syntax:
        rules: dict[str, Node] = {}
        lines: dict[str, int] = {}
        self._skip(newlines=True)
        while self._at < len(self._text):
            line = self._line()
            name = self._name()
            if name in rules:
                self._fail(f"defines the rule {name!r} again, which line {lines[name]} defines")
            self._skip(newlines=False)
            if not self._take("::="):
                self._fail(f"lacks '::=' after {name!r}; is this another notation?")
            self._skip(newlines=True)
            lines[name] = line
            rules[name] = self._alternatives(depth=0)
            if self._at < len(self._text) and not self._take("\n"):
                self._fail(f"has an unexpected {self._text[self._at]!r}")
            self._skip(newlines=True)
        check_start(start, lines)
        check_names(rules, lines)
        syntax = Syntax(rules=rules, start=start)
        check_productive(syntax, lines)
        return syntax

    def _alternatives(self, depth: int) -> Node:
        branches = [self._sequence(depth)]
        while self._take("|"):
            self._skip(newlines=True)
            branches.append(self._sequence(depth))
        return branches[0] if len(branches) == 1 else Choice(branches=tuple(branches))

    def _sequence(self, depth: int) -> Node:
        parts: list[Node] = []
        while (item := self._item(depth)) is not None:
            self._nodes_left -= 1
            if self._nodes_left < 0:
                raise ConstraintError(FIELD, f"has more than {self._max_nodes} symbols")
            self._skip(newlines=depth > 0)
            parts.append(self._counted(item, depth))
        return parts[0] if len(parts) == 1 else Sequence(parts=tuple(parts))

    def _counted(self, item: Node, depth: int) -> Node:
        repeats = 0
        while (counts := self._counts()) is not None:
            repeats += 1
            if repeats > MAX_COUNTS_IN_A_ROW:
                self._fail(f"has more than {MAX_COUNTS_IN_A_ROW} counts after one symbol")
            item = Repeat(body=item, least=counts[0], most=counts[1])
            self._skip(newlines=depth > 0)
        return item

    def _item(self, depth: int) -> Node | None:
        """The next symbol of a sequence without its counts; None where the sequence ends."""
        match self._text[self._at : self._at + 1]:
            case "" | "\n" | "|" | ")":
                return None
            case '"':
                return self._literal()
            case "[":
                return self._class()
            case ".":
                self._at += 1
                return Terminal(expression=e.chars(ANY), name=".")
            case "(":
                return self._group(depth)
            case "*" | "+" | "?" | "{" as mark:
                self._fail(f"has nothing before {mark!r} that it could repeat")
            case "<" | "!":
                raise UnsupportedConstraintError(
                    FIELD, f"refers to a token in line {self._line()}; tokens cannot be named, write their text"
                )
        return Reference(name=self._name())

    def _group(self, depth: int) -> Node:
        if depth >= MAX_NESTING:
            self._fail(f"nests parentheses more than {MAX_NESTING} deep")
        self._at += 1
        self._skip(newlines=True)
        group = self._alternatives(depth + 1)
        if not self._take(")"):
            self._fail("lacks a closing parenthesis")
        return group

    def _literal(self) -> Node:
        begin = self._at
        self._at += 1
        characters: list[str] = []
        while not self._take('"'):
            characters.append(self._character("a closing quote"))
        if not characters:
            return Sequence(parts=())
        return Terminal(expression=e.literal("".join(characters)), name=self._text[begin : self._at])

    def _class(self) -> Node:
        begin = self._at
        self._at += 1
        negated = self._take("^")
        ranges: list[tuple[int, int]] = []
        while not self._take("]"):
            first = last = self._character("a closing bracket")
            if self._text.startswith("-", self._at) and not self._text.startswith("-]", self._at):
                self._at += 1
                last = self._character("a closing bracket")
                if last < first:
                    self._fail(f"has the range {first}-{last} in the wrong order")
            ranges.append((ord(first), ord(last)))
        members = CharSet.from_ranges(ranges)
        members = ~members if negated else members
        name = self._text[begin : self._at]
        if not members:
            self._fail(f"has the class {name}, which no character is in")
        return Terminal(expression=e.chars(members), name=name)

    def _character(self, missing: str) -> str:
        if self._at >= len(self._text):
            self._fail(f"lacks {missing}")
        character = self._text[self._at]
        self._at += 1
        if character != "\\":
            return character
        kind = self._text[self._at : self._at + 1]
        self._at += 1
        if kind in _HEX_DIGITS:
            return self._code_point(_HEX_DIGITS[kind])
        if kind not in _ESCAPES:
            self._fail(f"has the unknown escape \\{kind}")
        return _ESCAPES[kind]

    def _code_point(self, length: int) -> str:
        digits = self._text[self._at : self._at + length]
        if not re.fullmatch(f"[0-9a-fA-F]{{{length}}}", digits):
            self._fail(f"has an escape that lacks {length} hexadecimal digits")
        self._at += length
        value = int(digits, 16)
        if 0xD800 <= value <= 0xDFFF or value > _LAST_CODE_POINT:
            self._fail(f"has the escape {digits}, which is no Unicode character")
        return chr(value)

    def _counts(self) -> tuple[int, int | None] | None:
        mark = self._text[self._at : self._at + 1]
        if mark in _SIMPLE_COUNTS:
            self._at += 1
            return _SIMPLE_COUNTS[mark]
        if mark != "{":
            return None
        found = _COUNTS.match(self._text, self._at)
        if found is None:
            self._fail("has braces that are no count; write {m}, {m,} or {m,n}")
        self._at = found.end()
        least = int(found[1])
        most = int(found[3]) if found[3] else None if found[2] else least
        if most is not None and most < least:
            self._fail(f"has the counts {least} and {most} in the wrong order")
        if max(least, most or 0) > MAX_COUNT:
            self._fail(f"has a count above {MAX_COUNT}")
        return least, most

    def _name(self) -> str:
        found = _NAME.match(self._text, self._at)
        if found is None:
            self._fail(f"has an unexpected {self._text[self._at]!r}")
        self._at = found.end()
        return found[0]

    def _skip(self, *, newlines: bool) -> None:
        found = (_BLANK_OR_NEWLINE if newlines else _BLANK).match(self._text, self._at)
        assert found is not None
        self._at = found.end()

    def _take(self, expected: str) -> bool:
        if not self._text.startswith(expected, self._at):
            return False
        self._at += len(expected)
        return True

    def _line(self) -> int:
        return self._text.count("\n", 0, self._at) + 1

    def _fail(self, problem: str) -> NoReturn:
        raise ConstraintError(FIELD, f"{problem} (line {self._line()})")
