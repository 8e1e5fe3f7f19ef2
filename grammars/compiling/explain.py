"""What a constraint means, for the one who wrote it. Runs in a worker, where it can be killed.

Invariant: the example is a text that the constraint allows; where no backend tells one, there is none.
"""

from __future__ import annotations

import json

from decoding.errors import ConstraintError, GrammarStateError
from grammars.compiling.dispatch import compile_constraint
from grammars.compiling.result import Explanation
from grammars.constraint import ConstraintKind, ConstraintSpec
from grammars.limits import ConstraintLimits
from grammars.matching.fewest import fewest_tokens
from grammars.matching.trie import TokenTrie


def explain_constraint(spec: ConstraintSpec, trie: TokenTrie, *, limits: ConstraintLimits, backend: str) -> Explanation:
    """Compile, and say what was understood. Raises what `compile_constraint` raises."""
    compilation = compile_constraint(spec, trie, limits=limits, backend=backend)
    grammar = compilation.grammar
    states, size_bytes = grammar.num_states, grammar.num_bytes
    try:
        shortest = grammar.shortest_text()
    except GrammarStateError as error:
        raise ConstraintError(spec.field, f"has no example: {error}") from error
    tokens = None if shortest is None else fewest_tokens(trie, shortest)
    return Explanation(
        normalised=normal_form(spec),
        enforced=compilation.enforced,
        unenforced=compilation.unenforced,
        states=states,
        size_bytes=size_bytes,
        shortest=None if shortest is None else shortest.decode(),
        shortest_tokens=None if tokens is None else len(tokens),
    )


def normal_form(spec: ConstraintSpec) -> str:
    """The text that stands for all constraints that are taken as equal; choices as a JSON array."""
    same = spec.normalised()
    if spec.kind is ConstraintKind.CHOICES:
        return json.dumps(same.values, ensure_ascii=False, separators=(",", ":"))
    return '{"type":"object"}' if spec.kind is ConstraintKind.JSON_OBJECT else same.text
