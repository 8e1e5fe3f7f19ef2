from __future__ import annotations

import itertools

import pytest

from engine.threads import ComputeThreads


class Machine:
    """A clock, and other processes that leave our threads a share of their time."""

    def __init__(self) -> None:
        self.wall_s, self.cpu_s, self.share, self.threads = 0.0, 0.0, 1.0, 0

    def set_threads(self, count: int) -> None:
        self.threads = count

    def run(self, governor: ComputeThreads, passes: int, seconds: float = 0.05) -> list[int]:
        counts = []
        for _ in range(passes):
            with governor.measured():
                counts.append(self.threads)
                self.wall_s += seconds
                # A thread alone gets its core; several spin for each other.
                self.cpu_s += seconds * self.threads * (self.share if self.threads > 1 else 1.0)
        return counts


@pytest.fixture
def machine() -> Machine:
    return Machine()


def governor(machine: Machine, most: int) -> ComputeThreads:
    return ComputeThreads(most, machine.set_threads, wall=lambda: machine.wall_s, cpu=lambda: machine.cpu_s)


def test_an_undisturbed_machine_keeps_all_threads(machine):
    assert set(machine.run(governor(machine, 2), 100)) == {2}


def test_one_disturbed_pass_is_forgiven_and_two_in_a_row_are_not(machine):
    threads = governor(machine, 2)
    machine.share = 0.5
    machine.run(threads, 1)
    machine.share = 1.0
    machine.run(threads, 1)
    machine.share = 0.5
    assert machine.run(threads, 3) == [2, 2, 1]


def test_a_busy_machine_is_tried_again_ever_more_rarely(machine):
    threads = governor(machine, 2)
    machine.share = 0.5
    counts = machine.run(threads, 20 * 60)
    assert counts.count(2) / len(counts) < 0.02
    gaps = [index for index, count in enumerate(counts) if count == 2]
    assert max(second - first for first, second in itertools.pairwise(gaps)) > 20 * 15


def test_all_threads_come_back_when_the_others_have_gone(machine):
    threads = governor(machine, 4)
    machine.share = 0.5
    assert min(machine.run(threads, 200)) == 1
    machine.share = 1.0
    assert machine.run(threads, 20 * 60 * 4)[-1] == 4
    machine.share = 0.5
    machine.run(threads, 2)
    machine.share = 1.0
    assert machine.run(threads, 25)[-1] == 4, "after a quiet time the first pause is short again"


def test_short_passes_tell_nothing(machine):
    machine.share = 0.1
    assert set(machine.run(governor(machine, 2), 50, seconds=0.001)) == {2}


def test_one_thread_stays_one(machine):
    machine.share = 0.1
    assert set(machine.run(governor(machine, 1), 50)) == {1}
