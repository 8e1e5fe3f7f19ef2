"""Several engines over the same tasks, in turns.

Invariant: one engine works at a time, and which comes first changes from task to task, so that a slow minute of the
machine and a cache that another has emptied hit all of them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from tests.bench.grammar.process import EngineProcess
from tests.bench.grammar.records import Record
from tests.bench.grammar.tasks import Task
from tests.bench.grammar.vocabularies import VocabularyFile

_PROGRESS_EVERY = 100


class Contest:
    """Engines over one vocabulary. Use as a context manager: a worker lives from its first task to the end."""

    def __init__(self, vocabulary: VocabularyFile, *, limit_s: float) -> None:
        self.vocabulary = vocabulary
        self._limit_s = limit_s
        self._processes: dict[str, EngineProcess] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process in self._processes.values():
            process.close()

    def run(
        self,
        title: str,
        engines: Sequence[str],
        tasks: Sequence[Task],
        only: Mapping[str, Sequence[Task]] | None = None,
    ) -> dict[str, list[Record]]:
        """The records of every engine in the order of ``tasks``; an engine in ``only`` takes part in those alone."""
        chosen = {engine: {task.name for task in part} for engine, part in (only or {}).items()}
        records: dict[str, list[Record]] = {engine: [] for engine in engines}
        for number, task in enumerate(tasks):
            first = number % len(engines)
            for engine in (*engines[first:], *engines[:first]):
                if engine not in chosen or task.name in chosen[engine]:
                    records[engine].append(self.run_one(engine, task))
            if number % _PROGRESS_EVERY == 0:
                print(f"{title}: {number} of {len(tasks)}", file=sys.stderr, flush=True)
        return records

    def run_one(self, engine: str, task: Task) -> Record:
        """One task by one engine."""
        if engine not in self._processes:
            self._processes[engine] = EngineProcess(engine, self.vocabulary, compile_limit_s=self._limit_s)
        return self._processes[engine].run(task)
