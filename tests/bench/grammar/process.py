"""The benchmark's side of a worker: it asks, waits no longer than a limit, and replaces what does not answer.

Invariant: after `run` the process is alive and idle, whatever the task did to the one before.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection
from typing import Any

from tests.bench.grammar.records import Compiled, Held, Record, Refused, Status
from tests.bench.grammar.tasks import Task
from tests.bench.grammar.vocabularies import VocabularyFile
from tests.bench.grammar.worker import serve

START_S = 300.0
WALK_S = 60.0
HOLD_S = 600.0


class _NoAnswerError(Exception):
    """The worker is dead or too slow; `args[0]` is the status."""


class EngineProcess:
    """One engine in a process of its own."""

    def __init__(self, engine: str, vocabulary: VocabularyFile, *, compile_limit_s: float) -> None:
        self.engine = engine
        self._vocabulary = vocabulary
        self._compile_limit_s = compile_limit_s
        self._start()

    def run(self, task: Task) -> Record:
        """Measure one task."""
        self._connection.send(task)
        parts: dict[str, Any] = {}
        try:
            answer = self._answer(self._compile_limit_s, Status.COMPILE_TIMEOUT)
            if isinstance(answer, Refused):
                return Record(name=task.name, status=Status.REFUSED, error=answer.error)
            assert isinstance(answer, Compiled)
            parts["compiled"] = answer
            for name in ("first", "second", "repeat_s"):
                parts[name] = self._answer(WALK_S, Status.WALK_TIMEOUT)
        except _NoAnswerError as failure:
            self.close()
            self._start()
            return Record(name=task.name, status=failure.args[0], **parts)
        return Record(name=task.name, status=Status.DONE, **parts)

    def hold(self, tasks: list[Task]) -> Held | None:
        """Memory of the tasks' grammars; None where the worker did not survive it."""
        self._connection.send(tasks)
        try:
            held = self._answer(HOLD_S, Status.COMPILE_TIMEOUT)
        except _NoAnswerError:
            return None
        assert isinstance(held, Held)
        return held

    def close(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.join()
        self._connection.close()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, self.engine, self._vocabulary), daemon=True)
        self._process.start()
        theirs.close()
        try:
            self._answer(START_S, Status.COMPILE_TIMEOUT)
        except _NoAnswerError as failure:
            self.close()
            raise SystemExit(f"the worker of {self.engine} did not start: {failure.args[0].value}") from failure

    def _answer(self, limit_s: float, late: Status) -> Any:
        connection: Connection = self._connection
        if not connection.poll(limit_s):
            raise _NoAnswerError(late)
        try:
            return connection.recv()
        except (EOFError, ConnectionError) as error:
            raise _NoAnswerError(Status.CRASHED) from error
