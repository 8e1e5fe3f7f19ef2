"""What the server and its own worker processes say to each other over pipes.

A frame is the length of its body (8 bytes, little-endian) and the body, a pickle. Pickle is sound here because both
ends are one program and the pipes are inherited; nothing of it ever travels over a network.

Invariant: what both ends hold (the vocabulary and its trie) is never sent with a result; the pickle names it.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from decoding.errors import EspalierError
from grammars.compiling.result import Compilation, CompiledConstraint, Explanation
from grammars.constraint import ConstraintSpec
from grammars.limits import ConstraintLimits
from grammars.matching.trie import TokenTrie

HEADER_BYTES = 8

ExplainFunction = Callable[..., Explanation]
"""The same arguments as a `CompileFunction`."""
CompileFunction = Callable[..., Compilation]
"""``compile(spec, trie, limits=..., backend=...)``; sent by its qualified name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The first frame that a worker gets.

    Attributes:
        parent: process id of the server; the worker dies with it.
        niceness: added to the worker's own.
        warm_up: compiled before the worker says that it is ready, without limits, so that what is imported and
            compiled by numba on first use is there.
    """

    parent: int
    niceness: int
    trie: TokenTrie
    limits: ConstraintLimits
    backend: str
    compile_function: CompileFunction
    explain_function: ExplainFunction
    warm_up: ConstraintSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One piece of work: compile a constraint, or with ``explains`` say what it means."""

    spec: ConstraintSpec
    explains: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer to an `Order`, and (empty) the sign that a worker is ready.

    Attributes:
        result: what was ordered, or None.
        error: why there is none, or None.
        retires: the worker exits after this reply, so that a new one starts with its whole memory budget.
    """

    result: CompiledConstraint | Explanation | None = None
    error: EspalierError | None = None
    retires: bool = False


def write_frame(stream: BinaryIO, message: object) -> None:
    """Send one message."""
    stream.write(frame(message))
    stream.flush()


def frame(message: object) -> bytes:
    """Header and body of one message."""
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return len(body).to_bytes(HEADER_BYTES, "little") + body


def read_frame(stream: BinaryIO) -> Any:
    """The next message; raises EOFError where the other end is gone."""
    header = stream.read(HEADER_BYTES)
    body = stream.read(int.from_bytes(header, "little"))
    if len(header) < HEADER_BYTES or len(body) < int.from_bytes(header, "little"):
        raise EOFError
    return pickle.loads(body)  # noqa: S301 - from our own parent process


def shared_objects(trie: TokenTrie) -> tuple[object, ...]:
    """What both ends hold, in one order."""
    return (trie, trie.vocabulary)


def pack(value: object, shared: Sequence[object]) -> bytes:
    """Pickle ``value``; where it refers to one of ``shared``, its index goes instead."""
    buffer = io.BytesIO()
    _SharingPickler(buffer, shared).dump(value)
    return buffer.getvalue()


def unpack(body: bytes, shared: Sequence[object]) -> Any:
    """The inverse of `pack`, with the other end's ``shared``."""
    return _SharingUnpickler(io.BytesIO(body), shared).load()


class _SharingPickler(pickle.Pickler):
    def __init__(self, file: BinaryIO, shared: Sequence[object]) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._index_of = {id(value): index for index, value in enumerate(shared)}

    def persistent_id(self, obj: object) -> int | None:
        return self._index_of.get(id(obj))


class _SharingUnpickler(pickle.Unpickler):
    def __init__(self, file: BinaryIO, shared: Sequence[object]) -> None:
        super().__init__(file)
        self._shared = shared

    def persistent_load(self, pid: Any) -> object:
        return self._shared[pid]
