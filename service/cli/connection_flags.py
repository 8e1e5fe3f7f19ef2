"""Flags that every command with a connection has."""

from __future__ import annotations

import argparse

from service.client import DEFAULT_ADDRESS, DEFAULT_TIMEOUT


def add_connection_flags(parser: argparse.ArgumentParser) -> None:
    """Add --address and --timeout."""
    group = parser.add_argument_group("connection")
    group.add_argument("--address", default=DEFAULT_ADDRESS, metavar="HOST:PORT", help="where the server listens")
    group.add_argument(
        "--timeout",
        type=float,
        default=DEFAULT_TIMEOUT,
        metavar="SECONDS",
        help="for the whole call, queueing included",
    )
