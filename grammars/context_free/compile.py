"""A grammar in either notation, to the text that llguidance compiles.

Invariant: from every prefix that the compiled grammar accepts some text can be completed.
"""

from __future__ import annotations

from grammars.constraint import Notation
from grammars.context_free.gbnf import read_gbnf
from grammars.context_free.lark_notation import read_lark
from grammars.context_free.lexing import check_endings, without_losses
from grammars.context_free.printing import print_syntax
from grammars.context_free.recursion import repetitions
from grammars.context_free.syntax import Syntax, reachable

DEFAULT_START = {Notation.GBNF: "root", Notation.LARK: "start"}


def translate(text: str, notation: Notation, *, start: str, max_nodes: int) -> str:
    """The text for llguidance; an empty ``start`` is the notation's own. Raises ConstraintError."""
    start = start or DEFAULT_START[notation]
    if notation is Notation.GBNF:
        return print_syntax(without_losses(_repetitive(read_gbnf(text, start=start, max_nodes=max_nodes))))
    read = read_lark(text, start=start)
    used = _repetitive(read.syntax)
    check_endings(used, read.skipped)
    return print_syntax(used)


def _repetitive(syntax: Syntax) -> Syntax:
    """With repetition in place of recursion where that is the same, and without rules that no text can use."""
    repetitive = Syntax(rules=repetitions(syntax.rules), start=syntax.start)
    return Syntax(rules=reachable(repetitive), start=syntax.start)
