"""Regular expressions as immutable trees: what a language is, with no word on how it is recognised.

Invariant: a node is complete at construction and never changes. The functions of `expressions` make nodes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Literal

from grammars.regular.charset import CharSet
from grammars.regular.machine import Machine

Escapes = Literal["any", "canonical"]
Record = tuple[type["Expression"], tuple[tuple[str, object], ...], tuple[int, ...]]
"""Class, fields other than the operands, positions of the operands."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Expression:
    """A node; `depth` and `size` are those of the tree below it, itself included."""

    operands: tuple[Expression, ...] = ()
    depth: int = 1
    size: int = 1

    def __reduce__(self) -> tuple[Callable[[tuple[Record, ...]], Expression], tuple[tuple[Record, ...]]]:
        """Pickle as flat records: deep trees would exhaust the pickler's recursion."""
        return restore, (flatten(self),)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chars(Expression):
    """One character of a set; the empty language where the set is empty."""

    charset: CharSet


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Text(Expression):
    """One word."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MachineLanguage(Expression):
    """The language of a machine."""

    machine: Machine


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Concat(Expression):
    """A word of each operand in turn."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Union(Expression):
    """The words of any operand."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Intersection(Expression):
    """The words of every operand."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Complement(Expression):
    """Every text of Unicode scalar values that is no word of the operand."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Repeat(Expression):
    """Between `least` and `most` words of the operand in turn; no upper bound where `most` is None."""

    least: int
    most: int | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LookAhead(Expression):
    """No characters; holds where what follows in the scope starts with a word of the operand (or does not)."""

    negative: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LookBehind(Expression):
    """No characters; holds where what precedes in the scope ends with a word of the operand (or does not)."""

    negative: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scope(Expression):
    """The operand, with its look-around confined to it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JsonString(Expression):
    """The JSON strings, quotes included, whose decoded text is a word of the operand."""

    escapes: Escapes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tagged(Expression):
    """The operand under a label that accepting states tell."""

    label: int


def walk(expression: Expression) -> list[Expression]:
    """Every distinct node, operands before the nodes that use them."""
    order: list[Expression] = []
    seen: set[int] = set()
    stack: list[tuple[Expression, bool]] = [(expression, False)]
    while stack:
        node, done = stack.pop()
        if done or not node.operands:
            if done or id(node) not in seen:
                seen.add(id(node))
                order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack += [(operand, False) for operand in node.operands]
    return order


def flatten(expression: Expression) -> tuple[Record, ...]:
    """The nodes as records, operands before the nodes that use them, the root last."""
    order = walk(expression)
    position = {id(node): i for i, node in enumerate(order)}
    return tuple(
        (
            type(node),
            tuple((f.name, getattr(node, f.name)) for f in fields(node) if f.name != "operands"),
            tuple(position[id(operand)] for operand in node.operands),
        )
        for node in order
    )


def restore(records: tuple[Record, ...]) -> Expression:
    """The expression of some records."""
    built: list[Expression] = []
    for kind, values, operands in records:
        named: dict[str, object] = {**dict(values), "operands": tuple(built[i] for i in operands)}
        built.append(kind(**named))  # type: ignore[arg-type]
    return built[-1]


def fingerprint(expression: Expression) -> str:
    """A hexadecimal SHA-256 digest, equal for expressions that are built alike."""
    digest = hashlib.sha256()
    for kind, values, operands in flatten(expression):
        shown = [value.identity() if key == "machine" else value for key, value in values]  # type: ignore[attr-defined]
        digest.update(repr((kind.__name__, shown, operands)).encode())
    return digest.hexdigest()
