"""Regular expressions as immutable trees: what a language is, with no word on how it is recognised.

Invariant: a node is complete at construction and never changes; the functions below are the only way to make one. Operands
are languages of whole texts (sequences of code points): anchors and look-around inside one operand see that operand alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal as OneOf

from decoding.errors import ConstraintError
from grammars.regular.charset import ANY, NONE, CharSet
from grammars.regular.machine import Machine
from grammars.regular.words import WordList

Escapes = OneOf["any", "canonical"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Expression:
    """A node; `depth` and `size` are those of the tree below it, itself included."""

    depth: int = 1
    size: int = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chars(Expression):
    """One character of a set; the empty language where the set is empty."""

    charset: CharSet


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Literal(Expression):
    """One word."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Concat(Expression):
    """A word of each part in turn."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Union(Expression):
    """The words of any part."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Intersection(Expression):
    """The words of every part."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Complement(Expression):
    """Every text of Unicode scalar values that is no word of the body."""

    body: Expression


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Repeat(Expression):
    """Between `least` and `most` words of the body in turn; no upper bound where `most` is None."""

    body: Expression
    least: int
    most: int | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LookAhead(Expression):
    """No characters; holds where what follows in the enclosing scope starts with a word of the body (or does not)."""

    body: Expression
    negative: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LookBehind(Expression):
    """No characters; holds where what precedes in the enclosing scope ends with a word of the body (or does not)."""

    body: Expression
    negative: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scope(Expression):
    """The body, with its look-around confined to it."""

    body: Expression


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JsonString(Expression):
    """The JSON strings, quotes included, whose decoded text is a word of the body (RFC 8259, section 7)."""

    body: Expression
    escapes: Escapes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tagged(Expression):
    """The body; accepting states tell that it was this one (`Automaton.tags`). Only a union may stand around it."""

    label: int
    body: Expression


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FromMachine(Expression):
    """The language of a machine."""

    machine: Machine


EMPTY: Expression = Chars(charset=NONE)
EPSILON: Expression = Literal(text="")
ANY_CHAR: Expression = Chars(charset=ANY)
ANY_TEXT: Expression = Repeat(body=ANY_CHAR, least=0, most=None, depth=2, size=2)


def chars(charset: CharSet | str) -> Expression:
    """One character of the set, or of the string's characters."""
    return Chars(charset=CharSet.of(charset) if isinstance(charset, str) else charset)


def literal(text: str | bytes) -> Expression:
    """Exactly this text; bytes are UTF-8.

    Raises:
        ConstraintError: the text is not valid UTF-8, or holds a surrogate.
    """
    try:
        text = text.decode() if isinstance(text, bytes) else text
        text.encode()
    except UnicodeError as error:
        raise ConstraintError("literal", f"not valid UTF-8 text ({error}); give Unicode scalar values") from error
    return Literal(text=text)


def words(texts: Iterable[str]) -> Expression:
    """Exactly these texts; made for long lists (one row costs time in the number of next characters)."""
    unique = sorted(set(texts))
    for text in unique:
        literal(text)
    return FromMachine(machine=WordList(tuple(unique))) if unique else EMPTY


def concat(*parts: Expression) -> Expression:
    """A word of each part in turn; no parts: the empty text."""
    flat: list[Expression] = []
    for part in parts:
        if part is EMPTY:
            return EMPTY
        if part is not EPSILON:
            flat += part.parts if isinstance(part, Concat) else (part,)
    if len(flat) < 2:
        return flat[0] if flat else EPSILON
    return Concat(parts=tuple(flat), depth=_depth(flat), size=_size(flat))


def union(*parts: Expression) -> Expression:
    """The words of any part; no parts: the empty language."""
    flat: list[Expression] = []
    for part in parts:
        if part is not EMPTY:
            flat += part.parts if isinstance(part, Union) else (part,)
    if len(flat) < 2:
        return flat[0] if flat else EMPTY
    return Union(parts=tuple(flat), depth=_depth(flat), size=_size(flat))


def intersection(*parts: Expression) -> Expression:
    """The words that every part has; no parts: every text."""
    flat: list[Expression] = []
    for part in parts:
        if part is EMPTY:
            return EMPTY
        if part is not ANY_TEXT:
            flat += part.parts if isinstance(part, Intersection) else (part,)
    if len(flat) < 2:
        return flat[0] if flat else ANY_TEXT
    return Intersection(parts=tuple(flat), depth=_depth(flat), size=_size(flat))


def complement(body: Expression) -> Expression:
    """Every text of Unicode scalar values that is no word of the body."""
    if isinstance(body, Complement):
        return body.body
    return Complement(body=body, depth=body.depth + 1, size=body.size + 1)


def difference(left: Expression, right: Expression) -> Expression:
    """The words of ``left`` that ``right`` lacks."""
    return intersection(left, complement(right))


def repeat(body: Expression, least: int, most: int | None = None) -> Expression:
    """Between ``least`` and ``most`` words of the body in turn (no upper bound where None); counts are never unrolled.

    Raises:
        ConstraintError: a negative count, or ``most`` below ``least``.
    """
    if least < 0 or (most is not None and most < least):
        raise ConstraintError("repeat", f"counts {least} to {most} are no range; give 0 <= least <= most")
    if most == 0:
        return EPSILON
    if least == most == 1:
        return body
    return Repeat(body=body, least=least, most=most, depth=body.depth + 1, size=body.size + 1)


def star(body: Expression) -> Expression:
    """Any number of words of the body in turn."""
    return repeat(body, 0)


def optional(body: Expression) -> Expression:
    """A word of the body, or nothing."""
    return repeat(body, 0, 1)


def length(least: int, most: int | None = None) -> Expression:
    """Texts of ``least`` to ``most`` code points (no upper bound where None)."""
    return ANY_TEXT if least == 0 and most is None else repeat(ANY_CHAR, least, most)


def look_ahead(body: Expression, *, negative: bool = False) -> Expression:
    """Holds where what follows starts with a word of the body. Wrap the whole in `scope` before combining it further."""
    return LookAhead(body=body, negative=negative, depth=body.depth + 1, size=body.size + 1)


def look_behind(body: Expression, *, negative: bool = False) -> Expression:
    """Holds where what precedes ends with a word of the body. Wrap the whole in `scope` before combining it further."""
    return LookBehind(body=body, negative=negative, depth=body.depth + 1, size=body.size + 1)


def scope(body: Expression) -> Expression:
    """The body as a language of whole texts: look-around in it sees nothing outside."""
    return Scope(body=body, depth=body.depth + 1, size=body.size + 1)


def json_string(body: Expression, *, escapes: Escapes = "any") -> Expression:
    r"""The JSON strings, quotes included, whose decoded text is a word of the body (RFC 8259, section 7).

    ``escapes="any"`` admits every spelling of a character: raw where legal, the short escapes, ``\uXXXX`` (surrogate pairs
    whole). ``"canonical"`` admits one: raw where legal, else the short escape, else ``\u00xx`` in lower case.
    """
    return JsonString(body=body, escapes=escapes, depth=body.depth + 1, size=body.size + 1)


def tagged(label: int, body: Expression) -> Expression:
    """The body under a label that `Automaton.tags` reports. Only unions may stand around it."""
    return Tagged(label=label, body=body, depth=body.depth + 1, size=body.size + 1)


def from_machine(machine: Machine) -> Expression:
    """The language of a machine."""
    return FromMachine(machine=machine)


def _depth(parts: Sequence[Expression]) -> int:
    return 1 + max(part.depth for part in parts)


def _size(parts: Sequence[Expression]) -> int:
    return 1 + sum(part.size for part in parts)
