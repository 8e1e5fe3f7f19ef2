"""How a client command ends: one table of exit codes, one place where exceptions become a line on stderr.

Invariant: a traceback never reaches the user of a client command for what the server, the network, the terminal or a
pipe did.
"""

from __future__ import annotations

import enum
import os
import sys
from collections.abc import Callable

from service.client import EspalierClientError, ResourceExhaustedError, UnavailableError


class ExitCode(enum.IntEnum):
    """Exit codes of the client commands."""

    OK = 0
    FAILED = 1
    """The server, the network or the client refused or failed, or the output could not be written; stderr says why."""
    USAGE = 2
    """The command line could not be understood, or a file could not be read."""
    CUT = 3
    """The text is only a prefix of what the constraint asks for."""
    INTERRUPTED = 130
    """Ctrl-C; the call was cancelled on the server (128 + SIGINT)."""
    BROKEN_PIPE = 141
    """Whoever read the output went away (128 + SIGPIPE)."""


def finish(run: Callable[[], int]) -> int:
    """Run a command's work and return its exit code, whatever happens."""
    try:
        code = run()
        sys.stdout.flush()
    except EspalierClientError as error:
        say(_explain(error))
        return ExitCode.FAILED
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return ExitCode.BROKEN_PIPE
    except OSError as error:
        _drop_output()
        say(str(error) if error.filename else f"the output cannot be written: {error.strerror}")
        return ExitCode.FAILED
    return code


def say(message: str) -> None:
    """One line for the user, on stderr."""
    print(f"espalier: {message}", file=sys.stderr)


def _drop_output() -> None:
    """The interpreter flushes stdout once more when it ends; let that go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _explain(error: EspalierClientError) -> str:
    if isinstance(error, UnavailableError):
        return f"no server is ready there ({error}); `espalier serve` starts one"
    if isinstance(error, ResourceExhaustedError) and error.retry_after is not None:
        return f"{error} (try again in {error.retry_after:g} s)"
    return str(error)
