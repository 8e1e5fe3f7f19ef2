"""The program of a worker: one engine, one vocabulary, one thread; tasks in, measurements out.

    Task     ──► Compiled | Refused, then Walked (first pass), then Walked (second pass) and the time of a repeat
    [Task]   ──► Held

Invariant: each answer leaves before the next stage starts, so that the other side can time each stage and kill it.
"""

from __future__ import annotations

import gc
import os
import resource
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import psutil

from tests.bench.grammar import engines, vocabularies
from tests.bench.grammar.engines import BenchEngine
from tests.bench.grammar.records import Compiled, Held, Outcome, Refused, Steps, Walked
from tests.bench.grammar.tasks import Instance, Task
from tests.bench.grammar.vocabularies import BenchVocabulary, VocabularyFile

MOST_TOKENS = 20_000
MEMORY_BYTES = 12 << 30
_CONTEXT = 12
_WARM_UP = '{"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a"]}'


def serve(connection: Connection, engine_name: str, file: VocabularyFile) -> None:
    """Answer until the other side closes the connection."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    os.dup2(2, 1)  # engines that print warnings keep out of the tables
    vocabulary = vocabularies.load(file)
    engine = engines.make(engine_name, vocabulary)
    worker = Worker(engine, vocabulary)
    worker.warm_up()
    connection.send("ready")
    while True:
        try:
            asked = connection.recv()
        except EOFError:
            return
        if isinstance(asked, Task):
            for answer in worker.measure(asked):
                connection.send(answer)
        else:
            connection.send(worker.hold(asked))


class Worker:
    """Measures an engine."""

    def __init__(self, engine: BenchEngine, vocabulary: BenchVocabulary) -> None:
        self._engine = engine
        self._vocabulary = vocabulary

    def warm_up(self) -> None:
        """Load what an engine loads on first use."""
        compiled = self._engine.compile("json", _WARM_UP)
        for _ in range(2):
            self._walk(compiled, '{"a": 1, "b": "x"}', StepTimes())

    def measure(self, task: Task) -> Iterator[Compiled | Refused | Walked | float | None]:
        """The answers to one task, in turn."""
        try:
            compiled, times = self._compiled(task.schema)
        except Exception as error:
            yield Refused(error=_message(error))
            return
        yield times
        yield self._walked(compiled, task)
        yield self._walked(compiled, task)
        yield self._repeat_s(task.schema, compiled)

    def hold(self, tasks: list[Task]) -> Held:
        """Compile all that compile, walk their valid instances, keep everything, and look at the memory."""
        process = psutil.Process()
        gc.collect()
        before = process.memory_info().rss
        kept = []
        for task in tasks:
            try:
                compiled = self._engine.compile("json", task.schema)
            except Exception:
                continue
            kept.append(compiled)
            for instance in task.instances:
                if instance.is_valid:
                    self._walk(compiled, instance.ordered or instance.text, StepTimes())
        gc.collect()
        own = [compiled.num_bytes for compiled in kept if hasattr(compiled, "num_bytes")]
        return Held(
            schemas=len(kept), rss_bytes=process.memory_info().rss - before, own_bytes=sum(own) if own else None
        )

    def _compiled(self, schema: str) -> tuple[Any, Compiled]:
        cpu = time.thread_time()
        start = time.perf_counter()
        compiled = self._engine.compile("json", schema)
        end = time.perf_counter()
        self._engine.matcher(compiled).mask()
        return compiled, Compiled(
            compile_s=end - start, first_mask_s=time.perf_counter() - end, cpu_s=time.thread_time() - cpu
        )

    def _walked(self, compiled: Any, task: Task) -> Walked:
        times = StepTimes()
        outcomes = tuple(self._outcome(compiled, instance, times) for instance in task.instances)
        return Walked(outcomes=outcomes, steps=times.steps())

    def _outcome(self, compiled: Any, instance: Instance, times: StepTimes) -> Outcome:
        accepted, where = self._walk(compiled, instance.text, times)
        ordered = None
        if accepted is False and instance.ordered is not None:
            ordered, where = self._walk(compiled, instance.ordered, times)
        return Outcome(is_valid=instance.is_valid, accepted=accepted, ordered_accepted=ordered, where=where)

    def _walk(self, compiled: Any, text: str, times: StepTimes) -> tuple[bool | None, str]:
        try:
            return self._walk_tokens(compiled, self._vocabulary.encode(text), times)
        except Exception as error:
            return None, _message(error)

    def _walk_tokens(self, compiled: Any, ids: list[int], times: StepTimes) -> tuple[bool | None, str]:
        """Every token has to be in the mask before it, and end-of-sequence in the last mask."""
        if len(ids) > MOST_TOKENS:
            return None, f"is longer than {MOST_TOKENS:,} tokens"
        matcher = self._engine.matcher(compiled)
        bits = matcher.bits
        clock, cpu_clock = time.perf_counter_ns, time.thread_time_ns
        for position, token in enumerate(ids):
            cpu = cpu_clock()
            start = clock()
            matcher.mask()
            masked = clock()
            if not int(bits[token >> 5]) >> (token & 31) & 1:
                return False, self._place(ids, position)
            ready = clock()
            advanced = matcher.accept(token)
            end = clock()
            times.add(masked - start, masked - start + end - ready, cpu_clock() - cpu)
            if not advanced:
                return False, f"legal in the mask, but refused: {self._place(ids, position)}"
        matcher.mask()
        eos = self._vocabulary.eos
        if not int(bits[eos >> 5]) >> (eos & 31) & 1:
            return False, "the end"
        return True, ""

    def _place(self, ids: list[int], position: int) -> str:
        tokens = self._vocabulary.tokens
        before = b"".join(tokens[token] for token in ids[max(0, position - _CONTEXT) : position])
        return f"{before.decode(errors='replace')} ▸{tokens[ids[position]].decode(errors='replace')}"

    def _repeat_s(self, schema: str, compiled: Any) -> float | None:
        """What a request costs whose schema is in the cache: its key, a look-up, a matcher and its mask."""
        key = getattr(self._engine, "key", None)
        if key is None:
            return None
        cache = {key(schema): compiled}
        start = time.perf_counter()
        self._engine.matcher(cache[key(schema)]).mask()
        return time.perf_counter() - start


class StepTimes:
    """Times of steps while they are taken, nanoseconds."""

    def __init__(self) -> None:
        self._times: list[tuple[int, int, int]] = []

    def add(self, mask_ns: int, step_ns: int, cpu_ns: int) -> None:
        """One token."""
        self._times.append((mask_ns, step_ns, cpu_ns))

    def steps(self) -> Steps:
        """All of them, as arrays."""
        table = np.asarray(self._times, dtype=np.float32).reshape(-1, 3) / 1e3
        return Steps(mask_us=table[:, 0], step_us=table[:, 1], cpu_us=table[:, 2])


def _message(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:400]
