"""From the text of a pattern to the expression of the texts that it matches.

Invariant: what comes out stands alone; look-around in it sees nothing of what it is later combined with.
"""

from __future__ import annotations

from typing import Literal

from decoding.errors import ConstraintError
from grammars.regular import expressions as e
from grammars.regular.limits import DEFAULT_LIMITS, RegularLimits
from grammars.regular.nodes import Concat, LookAhead, LookBehind, Union, walk
from grammars.regular.regex import assertions
from grammars.regular.regex.dialect import Flags
from grammars.regular.regex.ecma_dialect import ECMA
from grammars.regular.regex.parser import Parser
from grammars.regular.regex.python_dialect import PYTHON
from grammars.regular.regex.source import Source

Ends = tuple[e.Expression, ...]
DialectName = Literal["python", "ecma"]


def compile_regex(
    pattern: str,
    *,
    dialect: DialectName = "python",
    search: bool = False,
    flags: str = "",
    limits: RegularLimits = DEFAULT_LIMITS,
    field: str = "regex",
) -> e.Expression:
    """The texts that a pattern matches from end to end, or with ``search`` those that hold a match anywhere.

    ``flags`` are letters of the dialect: ``aimsx`` (python), ``ims`` (ecma). ``field`` is named in errors.

    Raises:
        ConstraintError: the pattern is malformed or exceeds a limit.
        UnsupportedConstraintError: it uses back-references, conditional or atomic groups, possessive quantifiers, a
        look-ahead
            inside a look-behind, or an unknown Unicode property.
    """
    chosen = PYTHON if dialect == "python" else ECMA
    if len(pattern) > limits.max_pattern_chars:
        raise ConstraintError(field, f"{len(pattern)} characters; at most {limits.max_pattern_chars} are allowed")
    unknown = set(flags) - set(chosen.letters)
    if unknown:
        raise ConstraintError(
            field, f"unknown flags {''.join(sorted(unknown))!r}; {chosen.name} has {chosen.letters!r}"
        )
    if any("\ud800" <= character <= "\udfff" for character in pattern):
        raise ConstraintError(field, "half a surrogate pair in the pattern; give Unicode scalar values")
    parsed = Parser(Source(pattern, field), chosen, Flags().changed(on=flags), limits).parse()
    ends = (assertions.END,) if search else (assertions.END, chosen.end)
    found = _anywhere(parsed, ends) if search else _whole(parsed, ends)
    return e.scope(found) if _looks_around(found) else found


def _whole(parsed: e.Expression, ends: Ends) -> e.Expression:
    return e.union(*(_trimmed(branch, ends)[1] for branch in _branches(parsed)))


def _anywhere(parsed: e.Expression, ends: Ends) -> e.Expression:
    """Pad every branch that is not anchored; branches with the same anchors share their padding."""
    by_anchors: dict[tuple[bool, bool], list[e.Expression]] = {}
    for branch in _branches(parsed):
        at_start, body, at_end = _trimmed(branch, ends)
        by_anchors.setdefault((at_start, at_end), []).append(body)
    padded = [
        e.concat(e.EPSILON if at_start else e.ANY_TEXT, e.union(*bodies), e.EPSILON if at_end else e.ANY_TEXT)
        for (at_start, at_end), bodies in by_anchors.items()
    ]
    return e.union(*padded)


def _branches(parsed: e.Expression) -> tuple[e.Expression, ...]:
    return parsed.operands if isinstance(parsed, Union) else (parsed,)


def _trimmed(branch: e.Expression, ends: Ends) -> tuple[bool, e.Expression, bool]:
    """A branch without the anchors at its ends, and whether there were any."""
    parts = list(branch.operands) if isinstance(branch, Concat) else [branch]
    at_start = at_end = False
    while parts and parts[0] is assertions.START:
        at_start = True
        parts.pop(0)
    while parts and any(parts[-1] is end for end in ends):
        at_end = True
        parts.pop()
    return at_start, e.concat(*parts), at_end


def _looks_around(expression: e.Expression) -> bool:
    return any(isinstance(node, (LookAhead, LookBehind)) for node in walk(expression))
