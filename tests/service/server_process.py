"""A real `espalier serve` process, its output and its children."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator

import psutil
from prometheus_client.parser import text_string_to_metric_families

START_S = 240


class ServerProcess:
    """A server in a process group of its own."""

    def __init__(self, *flags: str) -> None:
        command = [sys.executable, "-m", "service.cli.main", "serve", "--address", "127.0.0.1:0", *flags]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        self.lines: list[str] = []
        self.errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._keep, args=(self.process.stdout, self.lines)),
            threading.Thread(target=self._keep, args=(self.process.stderr, self.errors)),
        ]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _keep(stream, lines) -> None:
        for line in stream:
            lines.append(line.rstrip("\n"))

    def wait_for(self, pattern: str) -> re.Match:
        """The first line of standard output that matches."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            for line in list(self.lines):
                if match := re.search(pattern, line):
                    return match
            if self.process.poll() is not None:
                raise AssertionError(f"ended with {self.process.returncode}: {self.lines} {self.errors}")
            time.sleep(0.02)
        raise AssertionError(f"no {pattern!r} in {self.lines} {self.errors}")

    def ready(self) -> ServerProcess:
        self.address = self.wait_for(r"^ready on (\S+) with ")[1]
        return self

    @property
    def engine(self) -> psutil.Process:
        (child,) = [
            child
            for child in psutil.Process(self.process.pid).children()
            if any("spawn_main" in part for part in child.cmdline())
        ]
        return child

    def metric(self, name: str) -> float:
        url = self.wait_for(r"^metrics on (\S+)")[1]
        text = urllib.request.urlopen(url).read().decode()
        return next(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name
        )

    def wait_for_metric(self, name: str, value: float) -> None:
        deadline = time.monotonic() + 60
        while self.metric(name) != value:
            assert time.monotonic() < deadline, f"{name} is {self.metric(name)}, not {value}"
            time.sleep(0.02)

    def ended(self, timeout: float = 60) -> int:
        """Exit code; no child is left behind."""
        code = self.process.wait(timeout)
        for reader in self._readers:
            reader.join(timeout)  # a child that lives on would hold the pipes open
            assert not reader.is_alive()
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, 9)
            self.process.wait()
        print("\n".join(self.errors), file=sys.stderr)  # shown where a test fails


@contextlib.contextmanager
def server_process(*flags: str) -> Iterator[ServerProcess]:
    server = ServerProcess(*flags)
    try:
        yield server
    finally:
        server.close()
