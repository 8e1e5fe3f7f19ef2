"""`espalier serve`: flags to settings, settings to a running server.

Invariant: standard output carries the start-up phases and one line beginning with "ready"; everything else goes to
standard error.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence

from decoding.errors import EspalierError, InvalidRequestError
from engine.config import EngineConfig
from grammars.compiling.pool import PoolOptions
from grammars.limits import ConstraintLimits
from service.errors import AddressError
from service.flags import add_flags, read_flags
from service.limits import ServiceLimits
from service.logs import configure_logging
from service.server import serve
from service.settings import ServerSettings

COMPILE = "compile-"
CONSTRAINT = "constraint-"


def main(argv: Sequence[str]) -> int:
    """Exit codes: 0 after a signal, 1 where the server cannot start, 2 for wrong flags, 3 where the engine died."""
    parser = make_parser()
    try:
        settings = read_settings(parser.parse_args(argv))
    except InvalidRequestError as error:
        parser.error(f"{error.field} {error.message}")
    configure_logging(settings.log_level, settings.log_format)
    try:
        return asyncio.run(serve(settings, _announce))
    except (AddressError, EspalierError) as error:
        print(f"espalier serve: {error}", file=sys.stderr)
        return 1


def make_parser() -> argparse.ArgumentParser:
    """Every flag, in groups."""
    parser = argparse.ArgumentParser(prog="espalier serve", description="Serve a model over gRPC.")
    add_flags(parser.add_argument_group("server"), ServerSettings)
    add_flags(parser.add_argument_group("model and engine"), EngineConfig)
    add_flags(parser.add_argument_group("limits of requests"), ServiceLimits)
    add_flags(parser.add_argument_group("constraint compiler"), PoolOptions, prefix=COMPILE)
    add_flags(parser.add_argument_group("limits of constraints"), ConstraintLimits, prefix=CONSTRAINT)
    return parser


def read_settings(options: argparse.Namespace) -> ServerSettings:
    """The settings that the flags name. Raises InvalidRequestError with the flag as its field."""
    limits = read_flags(options, ConstraintLimits, prefix=CONSTRAINT)
    return read_flags(
        options,
        ServerSettings,
        engine=read_flags(options, EngineConfig),
        limits=read_flags(options, ServiceLimits),
        compiling=read_flags(options, PoolOptions, prefix=COMPILE, limits=limits),
    )


def _announce(line: str) -> None:
    print(line, flush=True)
