r"""Regular expressions as a format (ECMA-262), as far as they are regular themselves.

Groups inside groups go three levels deep. Left out, since a regular language cannot tell whether they are valid or
since engines disagree: back-references, look-behind, named groups, property escapes, counts whose order would have to
be compared, and ranges of a class other than between two digits, two small or two capital letters in order. Invariant:
every word compiles in Python's `re`, and under ECMA-262 with and without the u flag.
"""

from __future__ import annotations

import string
from typing import Final

from grammars.regular.charset import ANY, CharSet
from grammars.regular.expressions import Expression, chars, concat, literal, optional, star, union
from grammars.regular.regex.compile import compile_regex

_LEVELS: Final = 3
_SYNTAX: Final = CharSet.of("^$\\.*+?()[]{}|/")
_ESCAPE: Final = r"\\(?:[dDwWsSfnrtv^$\\.*+?()\[\]{}|]|x[0-9A-Fa-f]{2}|u(?!(?i:d[89a-f]))[0-9A-Fa-f]{4})"
_QUANTIFIER: Final = r"(?:[*+?]|\{(?:[0-9]{1,3},?|0,[0-9]{1,3})\})\??"


def regex() -> Expression:
    """Patterns with at most three levels of groups."""
    escape = compile_regex(_ESCAPE)
    plain = union(chars(ANY - _SYNTAX), literal("."), literal("/"), escape, _class(escape))
    quantifier = optional(compile_regex(_QUANTIFIER))
    pattern = _alternatives(star(union(concat(plain, quantifier), _anchor())))
    for _ in range(_LEVELS):
        group = concat(union(literal("("), literal("(?:")), pattern, literal(")"), quantifier)
        look = concat(union(literal("(?="), literal("(?!")), pattern, literal(")"))
        pattern = _alternatives(star(union(concat(plain, quantifier), _anchor(), group, look)))
    return pattern


def _alternatives(sequence: Expression) -> Expression:
    return concat(sequence, star(concat(literal("|"), sequence)))


def _anchor() -> Expression:
    return compile_regex(r"\^|\$|\\[bB]")


def _class(escape: Expression) -> Expression:
    member = union(chars(ANY - CharSet.of("^\\[]-&~|")), escape)
    return concat(
        literal("["), optional(literal("^")), union(member, _ranges()), star(union(member, _ranges())), literal("]")
    )


def _ranges() -> Expression:
    """``a-f``, with ends in order."""
    ordered = (string.digits, string.ascii_lowercase, string.ascii_uppercase)
    return union(*(concat(literal(f"{run[i]}-"), chars(run[i:])) for run in ordered for i in range(len(run))))
