"""ConstraintService: compile ahead of use, and explain.

Invariant: a handle names a constraint that the compile pool keeps, and nothing of one caller's.
"""

from __future__ import annotations

from typing import Any

import grpc

from decoding.errors import InvalidRequestError
from service.answer import to_wire
from service.readiness import Readiness
from service.v1 import constraint_pb2 as pb
from service.v1 import constraint_pb2_grpc


class ConstraintService(constraint_pb2_grpc.ConstraintServiceServicer):
    """See service/v1/constraint.proto."""

    def __init__(self, readiness: Readiness) -> None:
        self._readiness = readiness

    async def Compile(
        self, request: pb.CompileRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.CompileResponse:
        """Compile, and have the engine know the grammar before the first request with it comes."""
        with self._readiness.serving() as model:
            model.check_name(request.model)
            if request.constraint.WhichOneof("kind") == "compiled":
                raise InvalidRequestError("constraint.compiled", "is compiled already; send what it was made of")
            compiled, cached = await model.catalog.compile(request.constraint)
            handle = model.catalog.define(compiled)
            return pb.CompileResponse(
                handle=handle,
                compile_ms=0.0 if cached else compiled.compile_ms,
                cached=cached,
                size_bytes=compiled.size_bytes,
                states=compiled.states,
                unenforced=to_wire(compiled.unenforced),
            )

    async def Explain(
        self, request: pb.ExplainRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.ExplainResponse:
        """What a constraint means; nothing of it is kept for requests."""
        with self._readiness.serving() as model:
            model.check_name(request.model)
            if request.constraint.WhichOneof("kind") == "compiled":
                raise InvalidRequestError("constraint.compiled", "is compiled already; send what it was made of")
            found = await model.catalog.explain(request.constraint)
            return pb.ExplainResponse(
                normalised=found.normalised,
                enforced=[pb.EnforcedKeyword(pointer=item.pointer, keyword=item.keyword) for item in found.enforced],
                unenforced=to_wire(found.unenforced),
                states=found.states,
                size_bytes=found.size_bytes,
                shortest=found.shortest,
                shortest_tokens=found.shortest_tokens,
            )
