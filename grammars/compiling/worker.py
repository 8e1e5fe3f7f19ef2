"""The program of a worker process: reads constraints from standard input, writes compiled ones to standard output.

Invariant: a worker outlives neither its parent nor its limits, whatever the code that it runs does. It is started as a
fresh interpreter (`python -m grammars.compiling.worker`) and imports neither torch nor grpc,
unless the backend does.
"""

from __future__ import annotations

import ctypes
import math
import os
import resource
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from decoding.errors import ConstraintError, EspalierError
from grammars.compiling.messages import Order, Reply, Setup, pack, read_frame, shared_objects, write_frame
from grammars.compiling.result import CompiledConstraint, CompilerCrashError, Explanation
from grammars.constraint import ConstraintSpec

_PR_SET_PDEATHSIG = 1
_RETIRE_SHARE = 0.25
"""A worker that keeps this share of its memory budget after a compilation makes way for a fresh one."""


def main() -> None:
    """Serve until standard input ends."""
    requests = sys.stdin.buffer
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints must not corrupt a frame
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides when to stop
    try:
        _serve(read_frame(requests), requests, replies)
    except (EOFError, BrokenPipeError):
        os._exit(0)


def _serve(setup: Setup, requests: BinaryIO, replies: BinaryIO) -> None:
    _die_with(setup.parent)
    os.nice(setup.niceness)
    _compile(setup, setup.warm_up)
    budget = _MemoryBudget.grant(setup.limits.memory_bytes)
    write_frame(replies, Reply())
    retires = False
    while not retires:
        order = read_frame(requests)
        _limit_cpu(setup.limits.cpu_s)
        result, error = _attempt(setup, order)
        retires = budget.kept() > _RETIRE_SHARE
        write_frame(replies, Reply(result=result, error=error, retires=retires))


def _attempt(setup: Setup, order: Order) -> tuple[CompiledConstraint | Explanation | None, EspalierError | None]:
    spec = order.spec
    try:
        return _explain(setup, spec) if order.explains else _compile(setup, spec), None
    except EspalierError as error:
        return None, error
    except MemoryError:
        return None, ConstraintError(spec.field, memory_message(setup.limits.memory_bytes))
    except RecursionError:
        return None, ConstraintError(spec.field, "nests too deeply to be compiled; flatten it")
    except Exception as error:  # a bug that one constraint meets must not take the worker along
        traceback.print_exc()
        return None, CompilerCrashError(f"{spec.field}: {type(error).__name__} in the compiler: {error}")


def _explain(setup: Setup, spec: ConstraintSpec) -> Explanation:
    return setup.explain_function(spec, setup.trie, limits=setup.limits, backend=setup.backend)


def _compile(setup: Setup, spec: ConstraintSpec) -> CompiledConstraint:
    started = time.perf_counter()
    compilation = setup.compile_function(spec, setup.trie, limits=setup.limits, backend=setup.backend)
    compile_ms = 1000 * (time.perf_counter() - started)
    return CompiledConstraint(
        key=spec.key(fingerprint=setup.trie.vocabulary.fingerprint, backend=setup.backend),
        packed=pack(compilation.grammar, shared_objects(setup.trie)),
        unenforced=compilation.unenforced,
        compile_ms=compile_ms,
        states=compilation.grammar.num_states,
        size_bytes=compilation.grammar.num_bytes,
        layout=compilation.layout,
    )


def memory_message(limit: int) -> str:
    """What a caller reads where a compilation needs too much memory."""
    return f"needs more than {limit >> 20} MiB to compile; use fewer or smaller bounded repeats and alternatives"


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends (prctl(2))."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it went before the kernel was told
        os._exit(0)


def _limit_cpu(seconds: int) -> None:
    """Have the kernel end this process (SIGXCPU) ``seconds`` of processor time from now."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    deadline = math.ceil(used.ru_utime + used.ru_stime) + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (deadline, resource.getrlimit(resource.RLIMIT_CPU)[1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class _MemoryBudget:
    """Address space, in bytes, when the worker was ready, and what it may gain from there."""

    start: int
    allowance: int

    @classmethod
    def grant(cls, allowance: int) -> _MemoryBudget:
        """Let allocations fail past ``allowance`` more bytes, and leave no core file when that ends the process."""
        budget = cls(start=_address_space(), allowance=allowance)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (budget.start + allowance, resource.getrlimit(resource.RLIMIT_AS)[1]))
        return budget

    def kept(self) -> float:
        """Share of the allowance that is in use between compilations."""
        return (_address_space() - self.start) / self.allowance


def _address_space() -> int:
    """Bytes of virtual memory of this process (proc_pid_statm(5), first field)."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


if __name__ == "__main__":
    main()
