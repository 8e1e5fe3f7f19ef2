"""Regular languages of texts: an algebra of expressions, and automata over bytes that are built as they are walked.

Invariant: every automaton's words are valid UTF-8, and no state but DEAD is a dead end.
"""

from grammars.regular.automaton import DEAD, Automaton, build
from grammars.regular.charset import CharSet
from grammars.regular.expressions import (
    ANY_CHAR,
    ANY_TEXT,
    EMPTY,
    EPSILON,
    Expression,
    chars,
    complement,
    concat,
    difference,
    fingerprint,
    from_machine,
    intersection,
    json_string,
    length,
    literal,
    look_ahead,
    look_behind,
    optional,
    repeat,
    scope,
    star,
    tagged,
    union,
    words,
)
from grammars.regular.limits import DEFAULT_LIMITS, RegularLimits
from grammars.regular.regex.compile import compile_regex

__all__ = [
    "ANY_CHAR",
    "ANY_TEXT",
    "DEAD",
    "DEFAULT_LIMITS",
    "EMPTY",
    "EPSILON",
    "Automaton",
    "CharSet",
    "Expression",
    "RegularLimits",
    "build",
    "chars",
    "compile_regex",
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
