"""Constraints of requests: from the wire to a compiled grammar that the engine's process knows.

A request is submitted with the key of its constraint while that is still being compiled, so that its prompt is computed
meanwhile. Invariant: a key that `define` returned is known to the engine until `define` is called again; whoever waits
for it by then has it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from decoding.errors import ConstraintError, InvalidRequestError, PreconditionError
from grammars.compiling.pool import CompilePool, PoolOptions
from grammars.compiling.result import CompiledConstraint, Explanation
from grammars.constraint import ConstraintKind, ConstraintSpec, Notation
from grammars.library import MARK
from service.constraint_options import chosen, refuse_options_of_handle, spec_options
from service.engine_client import EngineClient
from service.engine_streams import EventStream
from service.structure import reasoning, structure
from service.v1 import common_pb2 as pb


def constraint_spec(message: pb.Constraint) -> ConstraintSpec:
    """What the message asks for; its kind is not a handle. Raises ConstraintError, InvalidRequestError."""
    name = message.WhichOneof("kind")
    if name is None and [field.name for field, _ in message.ListFields()] != ["reasoning"]:
        raise ConstraintError("constraint", "has no kind; set one, or leave the constraint unset for free text")
    kind = ConstraintKind.STRUCTURAL_TAGS if name is None else ConstraintKind(name)  # free text has no tags
    options = spec_options(message, kind)
    return ConstraintSpec(
        kind=kind,
        text=message.json_schema or message.regex or message.grammar.text,
        values=tuple(message.choices.values),
        **options,
        notation=_notation(message.grammar),
        start=message.grammar.start,
        structure=structure(message, options),
        reasoning=reasoning(message),
    )


def _notation(message: pb.Grammar) -> Notation:
    notation = chosen("grammar.notation", message.notation, pb.GrammarNotation.DESCRIPTOR, Notation.GBNF)
    if message.notation and message.text.startswith(MARK):
        raise InvalidRequestError(
            "constraint.grammar.notation", f"means nothing beside {message.text[:40]}; leave it unset"
        )
    return notation


class Compiling(NamedTuple):
    """A constraint on its way: its key, and what it compiles to."""

    key: str
    future: asyncio.Future[CompiledConstraint]

    @property
    def is_done(self) -> bool:
        """It is compiled, or refused."""
        return self.future.done()

    async def beside(self, events: EventStream) -> CompiledConstraint:
        """What it compiles to. Raises why it is refused, or why the request ``events`` failed meanwhile."""
        if not self.is_done:
            failed = asyncio.create_task(events.failed())
            try:
                await asyncio.wait((self.future, failed), return_when=asyncio.FIRST_COMPLETED)
                if not self.is_done:
                    raise failed.result()
            finally:
                failed.cancel()
        return self.future.result()


class ConstraintCatalog:
    """Compiled constraints, and which of them the engine's process has a copy of."""

    def __init__(self, pool: CompilePool, engine: EngineClient, options: PoolOptions) -> None:
        """``options`` bound the engine's copies as they bound the pool's cache."""
        self._pool = pool
        self._engine = engine
        self._options = options
        self._defined: OrderedDict[str, int] = OrderedDict()
        """Key to size in bytes, least recently used first."""

    @asynccontextmanager
    async def compiling(self, message: pb.Constraint) -> AsyncIterator[Compiling]:
        """Any kind of constraint, a handle included, on its way: the block goes on while it is compiled.

        What was compiled before is defined at once, so that a request with it must be submitted at once; anything else
        is the block's to define. Leaving the block leaves the compilation to others. Raises what `CompilePool.find`
        raises, InvalidRequestError, and PreconditionError where nothing is kept under a handle.
        """
        if message.WhichOneof("kind") == "compiled":
            yield Compiling(*self._ready(self._handled(message)))
            return
        spec = await asyncio.to_thread(constraint_spec, message)  # large constraints take a while to look at
        key, compiled = await self._pool.find(spec)
        if compiled is not None:
            yield Compiling(*self._ready(compiled))
            return
        task = asyncio.create_task(self._pool.compile(spec, key=key))
        try:
            yield Compiling(key, task)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def compile(self, message: pb.Constraint) -> tuple[CompiledConstraint, bool]:
        """The compiled form and whether it had been compiled before. Raises what `CompilePool.compile` raises."""
        spec = await asyncio.to_thread(constraint_spec, message)
        key, known = await self._pool.find(spec)
        return known or await self._pool.compile(spec, key=key), known is not None

    async def explain(self, message: pb.Constraint) -> Explanation:
        """What a constraint means. Raises what `CompilePool.explain` raises."""
        return await self._pool.explain(await asyncio.to_thread(constraint_spec, message))

    def _ready(self, compiled: CompiledConstraint) -> tuple[str, asyncio.Future[CompiledConstraint]]:
        done: asyncio.Future[CompiledConstraint] = asyncio.get_running_loop().create_future()
        done.set_result(compiled)
        return self.define(compiled), done

    def _handled(self, message: pb.Constraint) -> CompiledConstraint:
        refuse_options_of_handle(message)
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
