"""What a compilation yields.

Invariant: a `CompiledConstraint` is immutable and shared by every request with the same constraint; only the memory of
rows that its grammar has computed on demand grows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from decoding.errors import EspalierError
from grammars.constraint import UnenforcedKeyword
from grammars.protocol import Grammar


class SizedGrammar(Grammar, Protocol):
    """A grammar that knows how large it is now."""

    @property
    def num_states(self) -> int:
        """States built so far."""
        ...

    @property
    def num_bytes(self) -> int:
        """Memory held so far, without what all grammars of a vocabulary share."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledConstraint:
    """One compiled constraint.

    Attributes:
        key: hash of constraint, options, vocabulary and backend.
        grammar: what requests use.
        unenforced: keywords of a schema that the grammar does not enforce; only ever there with best_effort.
        compile_ms: wall time of the compilation, the first mask included.
    """

    key: str
    grammar: SizedGrammar
    unenforced: tuple[UnenforcedKeyword, ...] = ()
    compile_ms: float

    @property
    def states(self) -> int:
        """States that the grammar has built by now."""
        return self.grammar.num_states

    @property
    def size_bytes(self) -> int:
        """Memory that the grammar holds by now."""
        return self.grammar.num_bytes


class CompilerCrashError(EspalierError):
    """The compiler failed in a way that no constraint may cause: a bug of ours, or of a library (gRPC: INTERNAL)."""
