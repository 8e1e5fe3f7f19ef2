"""A server of one's own, as a child process.

Invariant: when the context ends, for whatever reason, the child has ended too.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from service.client import Client, EspalierClientError, Health

STOP_SECONDS = 30.0
"""How long a child may drain before it is killed."""
POLL_SECONDS = 0.2


class ChildServerError(Exception):
    """The child did not come to serve; the message says why."""


@contextmanager
def child_server(command: Sequence[str], address: str, *, startup_timeout: float) -> Iterator[None]:
    """Run a command that serves at `address` until the context ends; the context begins once it serves.

    The child's output goes where the caller's goes. Raises ChildServerError where it ends before it serves, or takes
    longer than `startup_timeout` seconds to.
    """
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as child:  # noqa: S603  (the caller's own command)
        try:
            _wait_until_serving(child, address, time.monotonic() + startup_timeout)
            yield
        finally:
            _stop(child)


def free_loopback_address() -> str:
    """An address on which nothing listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def _wait_until_serving(child: subprocess.Popen[bytes], address: str, deadline: float) -> None:
    with Client(address) as client:
        while time.monotonic() < deadline:
            if child.poll() is not None:
                raise ChildServerError(f"the server ended with exit code {child.returncode} before it could serve")
            with suppress(EspalierClientError):  # nothing listens yet
                if client.health(timeout=1.0) is Health.SERVING:
                    return
            time.sleep(POLL_SECONDS)
    raise ChildServerError("the server took too long to start; --startup-timeout gives it more time")


def _stop(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(STOP_SECONDS)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):  # or a second Ctrl-C
        child.kill()
        child.wait()
