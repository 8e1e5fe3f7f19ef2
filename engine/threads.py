"""How many threads compute, given who else wants the cores.

OpenMP threads that wait for each other spin. On a core that another process wants too, every parallel region then
waits for a time slice of the scheduler: on two cores a step of 26 ms was seen to take 600. Processor time tells: an
undisturbed forward pass uses nearly `threads` seconds of it per second (1.84 to 1.98 with two), a disturbed one no more
than half (0.57 to 1.01). So where passes are disturbed one thread less computes, and after a pause, which doubles as
long as it does not help, one more is tried again. Invariant: between 1 and ``most`` threads compute.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_UNDISTURBED = 0.75
"""Least share of the threads' time that an undisturbed pass spends on a processor."""

_SHORTEST_S = 0.002
"""Shorter passes tell nothing: the clocks and the work outside parallel regions blur them."""

_PATIENCE = 2
"""Disturbed passes in a row before a thread less computes."""

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0
_RELIEF = 0.9
"""Every undisturbed pass with all threads shortens the next pause by this factor."""


class ComputeThreads:
    """Adapts the number of compute threads to what the machine has left.

    Args:
        most: the number on an undisturbed machine, at least 1.
        set_threads: makes a number of threads take effect, as `torch.set_num_threads`.
        wall: clock in seconds.
        cpu: processor time of this process in seconds, all threads together.
    """

    def __init__(
        self,
        most: int,
        set_threads: Callable[[int], None],
        *,
        wall: Callable[[], float] = time.perf_counter,
        cpu: Callable[[], float] = time.process_time,
    ) -> None:
        self.count = most
        self._most = most
        self._set_threads = set_threads
        self._wall = wall
        self._cpu = cpu
        self._disturbed = 0
        self._pause_s = _FIRST_PAUSE_S
        self._retry_at = 0.0
        self._set_threads(most)

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Run one forward pass and learn from it."""
        if self.count < self._most and self._wall() >= self._retry_at:
            self._change(1)
        wall, cpu = self._wall(), self._cpu()
        yield
        self._learn(self._wall() - wall, self._cpu() - cpu)

    def _learn(self, wall_s: float, cpu_s: float) -> None:
        if self.count == 1 or wall_s < _SHORTEST_S:
            return
        if cpu_s >= _UNDISTURBED * self.count * wall_s:
            self._disturbed = 0
            if self.count == self._most:
                self._pause_s = max(_FIRST_PAUSE_S, _RELIEF * self._pause_s)
            return
        self._disturbed += 1
        if self._disturbed >= _PATIENCE:
            self._retry_at = self._wall() + self._pause_s
            self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
            self._change(-1)

    def _change(self, step: int) -> None:
        self.count += step
        self._disturbed = 0
        self._set_threads(self.count)
