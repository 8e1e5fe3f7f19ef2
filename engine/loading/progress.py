"""How long work on models is reported to whoever waits for it.

Invariant: reporting goes to standard error; standard output belongs to the command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

Update = Callable[[int, int | None], None]
"""Called with the work done so far and the whole of it (None: unknown), in any unit."""


class ProgressReporter(Protocol):
    """Shows one piece of work at a time."""

    def task(self, label: str) -> AbstractContextManager[Update]:
        """A piece of work that lasts as long as the context."""
        ...


class ProgressBars:
    """A bar for each piece of work; on a stream that is no terminal, one line when it ends."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)

    @contextmanager
    def task(self, label: str) -> Iterator[Update]:
        """See `ProgressReporter`."""
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self._console) as bars:
            bar = bars.add_task(label, total=None)

            def update(done: int, total: int | None) -> None:
                bars.update(bar, completed=done, total=total)

            yield update


class NoProgress:
    """Shows nothing."""

    @contextmanager
    def task(self, label: str) -> Iterator[Update]:  # noqa: ARG002 (the protocol's)
        """See `ProgressReporter`."""
        yield lambda _done, _total: None
