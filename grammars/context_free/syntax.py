"""Context-free syntax as immutable trees: what both notations become.

Invariant: a node is complete at construction and never changes; nodes are compared by identity, because two that look
alike stand at different places.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from grammars.regular.expressions import Expression

FIELD = "constraint.grammar"
"""Where a caller reads that a grammar is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Terminal:
    """A word of a regular language; ``name`` is for messages."""

    expression: Expression
    name: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reference:
    """A text of another rule."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sequence:
    """A text of each part in turn; of no parts, the empty text."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Choice:
    """A text of one of the branches, of which there is at least one."""

    branches: tuple[Node, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Repeat:
    """Between ``least`` and ``most`` texts of the body in turn; no upper bound where ``most`` is None."""

    body: Node
    least: int
    most: int | None


Node: TypeAlias = Terminal | Reference | Sequence | Choice | Repeat


@dataclass(frozen=True, slots=True, kw_only=True)
class Syntax:
    """Rules by name, every one that is referred to among them, and where a text starts."""

    rules: Mapping[str, Node]
    start: str


def parts_of(node: Node) -> tuple[Node, ...]:
    """The nodes right below."""
    match node:
        case Sequence(parts=parts):
            return parts
        case Choice(branches=branches):
            return branches
        case Repeat(body=body):
            return (body,)
        case _:
            return ()


def walk(node: Node) -> list[Node]:
    """Every node of a tree, the root first."""
    found, pending = [], [node]
    while pending:
        found.append(pending.pop())
        pending += reversed(parts_of(found[-1]))
    return found


def references(node: Node) -> list[str]:
    """Names that a tree refers to, in the order of the text, repeats included."""
    return [found.name for found in walk(node) if isinstance(found, Reference)]


def reachable(syntax: Syntax) -> dict[str, Node]:
    """The rules that a text can use, the start first."""
    found: dict[str, Node] = {}
    pending = [syntax.start]
    while pending:
        name = pending.pop()
        if name not in found:
            found[name] = syntax.rules[name]
            pending += reversed(references(found[name]))
    return found
