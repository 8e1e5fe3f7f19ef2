"""Bounds on one constraint and its compilation.

Invariant: what `ConstraintLimits.check` lets through is parsed by recursive code without exhausting the stack, and its
compilation ends, one way or another, within `wall_s`.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass

from decoding.errors import ConstraintError, InvalidRequestError
from grammars.constraint import ConstraintKind, ConstraintSpec

# A string is one token, so that brackets and commas inside it do not count; linear on every text.
_STRUCTURE = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{},]', re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstraintLimits:
    """What one constraint may cost. Sizes are in bytes of UTF-8, times in seconds.

    Attributes:
        text_bytes: a schema, a regular expression, or all choices together.
        pattern_bytes: a regular expression.
        grammar_bytes: a grammar.
        depth: how deep brackets nest in the JSON text of a schema.
        nodes: how many values (objects, arrays, scalars) a schema has, or symbols a grammar in GBNF.
        choices: how many choices.
        choice_bytes: one choice.
        wall_s: from the moment a worker takes a compilation until it is killed.
        cpu_s: processor time of a compilation, in whole seconds; unlike `wall_s` it does not depend on load.
        memory_bytes: address space that a worker may gain while it compiles.
    """

    text_bytes: int = 1 << 20
    pattern_bytes: int = 16 << 10
    grammar_bytes: int = 64 << 10
    depth: int = 128
    nodes: int = 50_000
    choices: int = 50_000
    choice_bytes: int = 4096
    wall_s: float = 30.0
    cpu_s: int = 10
    memory_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if not getattr(self, field.name) > 0:
                raise InvalidRequestError(field.name, f"is {getattr(self, field.name)}; it must be above 0")

    def check(self, spec: ConstraintSpec) -> None:
        """Raise ConstraintError where ``spec`` is larger than these limits. Linear in its size."""
        if spec.structure is not None:
            contents = tuple(spec.structure.contents())
            for content in contents:
                self.check(content)
            total = sum(len(text.encode()) for content in contents for text in (content.text, *content.values))
            at_most(spec.field, total, self.text_bytes, "bytes in all parts together")
            return
        if spec.kind is ConstraintKind.CHOICES:
            self._check_choices(spec)
            return
        at_most(spec.field, len(spec.text.encode()), self.text_bytes, "bytes")
        if spec.kind is ConstraintKind.REGEX:
            at_most(spec.field, len(spec.text.encode()), self.pattern_bytes, "bytes")
        elif spec.kind is ConstraintKind.GRAMMAR:
            at_most(spec.field, len(spec.text.encode()), self.grammar_bytes, "bytes")
        elif spec.kind is ConstraintKind.JSON_SCHEMA:
            self._check_structure(spec)

    def _check_choices(self, spec: ConstraintSpec) -> None:
        at_most(spec.field, len(spec.values), self.choices, "choices")
        total = 0
        for index, value in enumerate(spec.values):
            size = len(value.encode())
            at_most(f"{spec.field}.values[{index}]", size, self.choice_bytes, "bytes")
            total += size
        at_most(spec.field, total, self.text_bytes, "bytes in all choices together")

    def _check_structure(self, spec: ConstraintSpec) -> None:
        depth, nodes = 0, 1
        for match in _STRUCTURE.finditer(spec.text):
            match match[0]:
                case "[" | "{":
                    depth += 1
                    nodes += 1
                    at_most(spec.field, depth, self.depth, "levels of nesting")
                case "]" | "}":
                    depth -= 1
                case ",":
                    nodes += 1
        at_most(spec.field, nodes, self.nodes, "values")


def at_most(field: str, value: int, limit: int, what: str) -> None:
    """Raise ConstraintError where ``value`` of ``what`` exceeds ``limit``."""
    if value > limit:
        raise ConstraintError(field, f"has {value} {what}; the limit is {limit}")
