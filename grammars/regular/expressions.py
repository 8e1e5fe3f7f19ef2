"""The algebra of regular languages of texts (sequences of Unicode scalar values).

Operands are languages of whole texts: anchors and look-around inside one operand of an intersection, a complement, a
tag or a JSON string see that operand alone; `scope` does the same for concatenation, union and repetition. Invariant:
functions return new nodes, simplified where that costs nothing; no operator ever unrolls a count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from decoding.errors import ConstraintError
from grammars.regular import nodes as n
from grammars.regular.charset import ANY, NONE, CharSet
from grammars.regular.machine import Machine
from grammars.regular.nodes import Escapes, Expression, fingerprint
from grammars.regular.words import WordList

__all__ = [
    "ANY_CHAR",
    "ANY_TEXT",
    "EMPTY",
    "EPSILON",
    "Expression",
    "chars",
    "complement",
    "concat",
    "difference",
    "fingerprint",
    "from_machine",
    "intersection",
    "json_string",
    "length",
    "literal",
    "look_ahead",
    "look_behind",
    "optional",
    "repeat",
    "scope",
    "star",
    "tagged",
    "union",
    "words",
]

EMPTY: Expression = n.Chars(charset=NONE)
EPSILON: Expression = n.Text(text="")
ANY_CHAR: Expression = n.Chars(charset=ANY)
ANY_TEXT: Expression = n.Repeat(operands=(ANY_CHAR,), least=0, most=None, depth=2, size=2)


def chars(charset: CharSet | str) -> Expression:
    """One character of the set, or of the string's characters."""
    return n.Chars(charset=CharSet.of(charset) if isinstance(charset, str) else charset)


def literal(text: str | bytes) -> Expression:
    """Exactly this text; bytes are UTF-8.

    Raises:
        ConstraintError: the text is not valid UTF-8, or holds half a surrogate pair.
    """
    try:
        text = text.decode() if isinstance(text, bytes) else text
        text.encode()
    except UnicodeError as error:
        raise ConstraintError("literal", f"not valid UTF-8 text ({error}); give Unicode scalar values") from error
    return n.Text(text=text) if text else EPSILON


def words(texts: Iterable[str]) -> Expression:
    """Exactly these texts; made for long lists (a row costs time in the number of next characters).

    Raises:
        ConstraintError: a text holds half a surrogate pair.
    """
    unique = sorted(set(texts))
    literal("".join(unique))
    return from_machine(WordList(tuple(unique))) if unique else EMPTY


def concat(*parts: Expression) -> Expression:
    """A word of each part in turn; no parts: the empty text."""
    if any(part is EMPTY for part in parts):
        return EMPTY
    flat = _flat(n.Concat, parts, EPSILON)
    if len(flat) < 2:
        return flat[0] if flat else EPSILON
    return n.Concat(operands=flat, depth=_depth(flat), size=_size(flat))


def union(*parts: Expression) -> Expression:
    """The words of any part; no parts: the empty language."""
    flat = _flat(n.Union, parts, EMPTY)
    if len(flat) < 2:
        return flat[0] if flat else EMPTY
    return n.Union(operands=flat, depth=_depth(flat), size=_size(flat))


def intersection(*parts: Expression) -> Expression:
    """The words that every part has; no parts: every text."""
    if any(part is EMPTY for part in parts):
        return EMPTY
    flat = _flat(n.Intersection, parts, ANY_TEXT)
    if len(flat) < 2:
        return flat[0] if flat else ANY_TEXT
    return n.Intersection(operands=flat, depth=_depth(flat), size=_size(flat))


def complement(body: Expression) -> Expression:
    """Every text of Unicode scalar values that is no word of the body."""
    if isinstance(body, n.Complement):
        return body.operands[0]
    return n.Complement(operands=(body,), depth=body.depth + 1, size=body.size + 1)


def difference(left: Expression, right: Expression) -> Expression:
    """The words of ``left`` that ``right`` lacks."""
    return intersection(left, complement(right))


def repeat(body: Expression, least: int, most: int | None = None) -> Expression:
    """Between ``least`` and ``most`` words of the body in turn; no upper bound where ``most`` is None.

    Raises:
        ConstraintError: a negative count, or ``most`` below ``least``.
    """
    if least < 0 or (most is not None and most < least):
        raise ConstraintError("repeat", f"counts {least} to {most} are no range; give 0 <= least <= most")
    if most == 0:
        return EPSILON
    if least == most == 1:
        return body
    return n.Repeat(operands=(body,), least=least, most=most, depth=body.depth + 1, size=body.size + 1)


def star(body: Expression) -> Expression:
    """Any number of words of the body in turn."""
    return repeat(body, 0)


def optional(body: Expression) -> Expression:
    """A word of the body, or nothing."""
    return repeat(body, 0, 1)


def length(least: int, most: int | None = None) -> Expression:
    """Texts of ``least`` to ``most`` code points; no upper bound where ``most`` is None."""
    return ANY_TEXT if least == 0 and most is None else repeat(ANY_CHAR, least, most)


def look_ahead(body: Expression, *, negative: bool = False) -> Expression:
    """Nothing, where what follows in the scope starts with a word of the body (where it does not, if negative)."""
    return n.LookAhead(operands=(body,), negative=negative, depth=body.depth + 1, size=body.size + 1)


def look_behind(body: Expression, *, negative: bool = False) -> Expression:
    """Nothing, where what precedes in the scope ends with a word of the body (where it does not, if negative).

    Look-ahead inside the body sees no further than the place of the look-behind.
    """
    return n.LookBehind(operands=(body,), negative=negative, depth=body.depth + 1, size=body.size + 1)


def scope(body: Expression) -> Expression:
    """The body as a language of whole texts: look-around in it sees nothing outside."""
    return n.Scope(operands=(body,), depth=body.depth + 1, size=body.size + 1)


def json_string(body: Expression, *, escapes: Escapes = "any") -> Expression:
    r"""The JSON strings, quotes included, whose decoded text is a word of the body (RFC 8259, section 7).

    ``escapes="any"`` admits every spelling of a character: raw where legal, the short escapes, ``\uXXXX`` (surrogate
    pairs whole). ``"canonical"`` admits one: raw where legal, else the short escape, else ``\u00xx`` in lower case.
    """
    return n.JsonString(operands=(body,), escapes=escapes, depth=body.depth + 1, size=body.size + 1)


def tagged(label: int, body: Expression) -> Expression:
    """The body under a label that `Automaton.tags` reports. Only unions may stand around it."""
    return n.Tagged(operands=(body,), label=label, depth=body.depth + 1, size=body.size + 1)


def from_machine(machine: Machine) -> Expression:
    """The language of a machine."""
    return n.MachineLanguage(machine=machine)


def _flat(kind: type[Expression], parts: Sequence[Expression], neutral: Expression) -> tuple[Expression, ...]:
    """The parts, those of nested nodes of the same kind in their place, without neutral ones."""
    flat: list[Expression] = []
    for part in parts:
        if part is not neutral:
            flat += part.operands if isinstance(part, kind) else (part,)
    return tuple(flat)


def _depth(parts: Sequence[Expression]) -> int:
    return 1 + max(part.depth for part in parts)


def _size(parts: Sequence[Expression]) -> int:
    return 1 + sum(part.size for part in parts)
