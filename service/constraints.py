"""Constraints of requests: from the wire to a compiled grammar that the engine's process knows.

Invariant: a key that `define` returned is known to the engine until `define` is called again, so that a request with it
must be submitted at once.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from decoding.errors import ConstraintError, InvalidRequestError, PreconditionError
from grammars.compiling.pool import CompilePool, PoolOptions
from grammars.compiling.result import CompiledConstraint
from grammars.constraint import ConstraintKind, ConstraintSpec, Notation, Whitespace
from grammars.library import MARK
from service.engine_client import EngineClient
from service.v1 import common_pb2 as pb

_WHITESPACE = {
    pb.WHITESPACE_POLICY_UNSPECIFIED: Whitespace.COMPACT,
    pb.WHITESPACE_POLICY_COMPACT: Whitespace.COMPACT,
    pb.WHITESPACE_POLICY_SPACED: Whitespace.SPACED,
    pb.WHITESPACE_POLICY_FLEXIBLE: Whitespace.FLEXIBLE,
}
_NOTATION = {
    pb.GRAMMAR_NOTATION_UNSPECIFIED: Notation.GBNF,
    pb.GRAMMAR_NOTATION_GBNF: Notation.GBNF,
    pb.GRAMMAR_NOTATION_LARK: Notation.LARK,
}


def constraint_spec(message: pb.Constraint) -> ConstraintSpec:
    """What the message asks for; its kind is not a handle. Raises ConstraintError, InvalidRequestError."""
    whitespace = _WHITESPACE.get(message.whitespace)
    if whitespace is None:
        known = ", ".join(pb.WhitespacePolicy.keys())
        raise InvalidRequestError("constraint.whitespace", f"has the unknown value {message.whitespace}; use {known}")
    name = message.WhichOneof("kind")
    if name is None:
        raise ConstraintError("constraint", "has no kind; set one, or leave the constraint unset for free text")
    kind = ConstraintKind(name)
    if message.whitespace and kind not in (ConstraintKind.JSON_SCHEMA, ConstraintKind.JSON_OBJECT):
        raise InvalidRequestError("constraint.whitespace", f"means nothing beside {kind.value}; leave it unset")
    return ConstraintSpec(
        kind=kind,
        text=message.json_schema or message.regex or message.grammar.text,
        values=tuple(message.choices.values),
        whitespace=whitespace,
        best_effort=message.best_effort,
        notation=_notation(message.grammar),
        start=message.grammar.start,
    )


def _notation(message: pb.Grammar) -> Notation:
    field = "constraint.grammar.notation"
    notation = _NOTATION.get(message.notation)
    if notation is None:
        known = ", ".join(pb.GrammarNotation.keys())
        raise InvalidRequestError(field, f"has the unknown value {message.notation}; use {known}")
    if message.notation and message.text.startswith(MARK):
        raise InvalidRequestError(field, f"means nothing beside {message.text[:40]}; leave it unset")
    return notation


class ConstraintCatalog:
    """Compiled constraints, and which of them the engine's process has a copy of."""

    def __init__(self, pool: CompilePool, engine: EngineClient, options: PoolOptions) -> None:
        """``options`` bound the engine's copies as they bound the pool's cache."""
        self._pool = pool
        self._engine = engine
        self._options = options
        self._defined: OrderedDict[str, int] = OrderedDict()
        """Key to size in bytes, least recently used first."""

    async def compile(self, message: pb.Constraint) -> tuple[CompiledConstraint, bool]:
        """The compiled form and whether it had been compiled before. Raises what `CompilePool.compile` raises."""
        # Large constraints take a while to look at.
        spec = await asyncio.to_thread(constraint_spec, message)
        known = self._pool.lookup(await asyncio.to_thread(self._pool.key, spec))
        return known or await self._pool.compile(spec), known is not None

    async def resolve(self, message: pb.Constraint) -> CompiledConstraint:
        """The compiled form of any kind of constraint, a handle included.

        Raises what `compile` raises, and PreconditionError where nothing is kept under a handle.
        """
        if message.WhichOneof("kind") != "compiled":
            return (await self.compile(message))[0]
        if message.whitespace or message.best_effort:
            raise InvalidRequestError("constraint", "a handle fixes whitespace and best_effort; leave them unset")
        compiled = self._pool.lookup(message.compiled)
        if compiled is None:
            raise PreconditionError("constraint.compiled: the server does not keep this constraint; compile it again")
        return compiled

    def define(self, compiled: CompiledConstraint) -> str:
        """The key under which the engine knows the grammar from now on."""
        key = compiled.key
        if key not in self._defined:
            self._engine.define_grammar(key, compiled.packed)
            self._defined[key] = compiled.size_bytes
        self._defined.move_to_end(key)
        self._evict()
        return key

    def _evict(self) -> None:
        """Drop the least recently used, but never the last."""
        total = sum(self._defined.values())
        while len(self._defined) > 1 and (
            len(self._defined) > self._options.cache_entries or total > self._options.cache_bytes
        ):
            key, size = self._defined.popitem(last=False)
            total -= size
            self._engine.drop_grammar(key)
