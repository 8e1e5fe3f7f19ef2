"""Regular expressions in, compiled constraints out.

Invariant: a pattern that compiles matches at least one text.
"""

from __future__ import annotations

import hashlib

from decoding.errors import ConstraintError
from grammars.matching.constraint import CompiledConstraint
from grammars.matching.regular_source import RegularLanguage
from grammars.regular.automaton import build
from grammars.regular.charset import ANY, CharSet
from grammars.regular.expressions import Expression
from grammars.regular.regex.compile import DialectName
from grammars.regular.regex.compile import compile_regex as parse_regex

FIELD = "constraint.regex"


def compile_regex(
    pattern: str, *, dialect: DialectName = "python", flags: str = "", characters: CharSet = ANY
) -> CompiledConstraint:
    """Texts of ``characters`` that match a pattern in full.

    Raises ConstraintError where it does not parse, is too large, or matches nothing, and UnsupportedConstraintError
    where it is not regular (back-references).
    """
    expression = parse_regex(pattern, dialect=dialect, flags=flags, field=FIELD)
    if build(expression).is_empty:
        raise ConstraintError(FIELD, "matches no text at all; check its anchors and look-around")
    if characters != ANY and build(expression, characters=characters).is_empty:
        raise ConstraintError(FIELD, "matches no text that the model can write: its vocabulary lacks tokens for it")
    digest = hashlib.sha256(f"regex\n{dialect}\n{flags}\n{pattern}\n{characters.bounds}".encode())
    return compile_expression(expression, digest.hexdigest(), characters=characters)


def compile_expression(expression: Expression, text_key: str, *, characters: CharSet = ANY) -> CompiledConstraint:
    """Texts of any regular language; equal languages may have different keys, different ones must not share one."""
    return CompiledConstraint(text_key=text_key, language=RegularLanguage(expression, characters))
