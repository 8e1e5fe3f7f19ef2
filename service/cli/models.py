"""`espalier models`: what a server serves, and its limits.

Invariant: --json carries every field of `service.client.Model`; the table shows the same.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterator, Sequence

from service.cli.connection_flags import add_connection_flags
from service.cli.outcome import ExitCode, finish
from service.client import Client, Model


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command."""
    made = argparse.ArgumentParser(prog="espalier models", description="Show what a server serves, and its limits.")
    made.add_argument("--json", action="store_true", dest="as_json", help="print a JSON array instead of a table")
    add_connection_flags(made)
    return made


def main(argv: Sequence[str]) -> int:
    """Run the command; the exit code is an ExitCode."""
    options = make_parser().parse_args(argv)
    return finish(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    with Client(options.address, timeout=options.timeout) as client:
        models = client.models()
    if options.as_json:
        print(json.dumps([dataclasses.asdict(model) for model in models], ensure_ascii=False))
    else:
        print("\n\n".join(_table(model) for model in models))
    return ExitCode.OK


def _table(model: Model) -> str:
    rows = list(_rows(model))
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def _rows(model: Model) -> Iterator[tuple[str, str]]:
    fields = dataclasses.asdict(model)
    limits = fields.pop("limits")
    for name, value in [*fields.items(), *limits.items()]:
        if isinstance(value, bool):
            yield name, "yes" if value else "no"
        elif isinstance(value, int):
            yield name, f"{value:,}"
        elif isinstance(value, tuple):
            yield name, ", ".join(str(item) for item in value)
        else:
            yield name, str(value)
