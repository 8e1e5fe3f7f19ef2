"""What a compilation yields, in the worker and outside of it.

Invariant: a `CompiledConstraint` is inert: nothing of a caller's constraint is computed by keeping it or passing it on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from decoding.errors import EspalierError
from grammars.constraint import EnforcedKeyword, UnenforcedKeyword
from grammars.protocol import Grammar
from grammars.structural.layout import Layout


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

    def shortest_text(self) -> bytes | None:
        """A text as short as can be; None where the grammar does not tell. Raises GrammarStateError where finding it
        takes too much work.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """What a compile function returns in the worker.

    ``enforced`` and ``unenforced`` are the keywords of a schema that the grammar does and does not enforce; known
    keywords are only ever among the latter with best_effort.
    ``layout`` says how a text with several parts is taken apart.
    """

    grammar: SizedGrammar
    enforced: tuple[EnforcedKeyword, ...] = ()
    unenforced: tuple[UnenforcedKeyword, ...] = ()
    layout: Layout | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledConstraint:
    """A compilation on its way from the worker to wherever requests use it.

    Attributes:
        key: `ConstraintSpec.key` of the constraint.
        packed: the grammar as `messages.pack` makes it; `messages.unpack` beside the same trie makes the grammar.
        unenforced, layout: see `Compilation`.
        compile_ms: wall time of the compilation, the first mask included.
        states: states built with the first mask.
        size_bytes: memory of the grammar with them; it grows as texts reach further states.
    """

    key: str
    packed: bytes
    unenforced: tuple[UnenforcedKeyword, ...]
    compile_ms: float
    states: int
    size_bytes: int
    layout: Layout | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What a constraint means.

    Attributes:
        normalised: the one text that stands for all constraints that are taken as equal.
        enforced: keywords of a schema that every text obeys.
        unenforced: see `Compilation`.
        states: states built with the first mask.
        size_bytes: memory of the grammar with them.
        shortest: an example, as short as can be; None where the backend does not tell.
        shortest_tokens: the fewest tokens that spell it.
    """

    normalised: str
    enforced: tuple[EnforcedKeyword, ...]
    unenforced: tuple[UnenforcedKeyword, ...]
    states: int
    size_bytes: int
    shortest: str | None
    shortest_tokens: int | None


class CompilerCrashError(EspalierError):
    """The compiler failed in a way that no constraint may cause: a bug of ours, or of a library (gRPC: INTERNAL)."""
