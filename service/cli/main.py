"""`espalier COMMAND ...`: find the command's module and hand the rest of the line to it.

A command is a module ``service.cli.<command>`` with ``main(argv: Sequence[str]) -> int``, which parses its own flags
(``prog="espalier <command>"``) and returns the exit code. Invariant: importing this module imports no torch, and no
command pays for another's imports.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from importlib import metadata

COMMANDS = {
    "serve": "serve a model over gRPC",
    "generate": "send one prompt to a server and print the text",
    "explain": "say what a constraint means, with a shortest text that it allows",
    "models": "show what a server serves, and its limits",
    "demo": "start a server, send constrained requests to it and check the results",
}
SERVER_COMMANDS = frozenset({"serve", "demo"})
"""Commands that need the server extra; the others run on the bare install."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is the command's own, or 2 where the line cannot be understood."""
    options = _parser().parse_args(argv)
    try:
        command = importlib.import_module(f"service.cli.{options.command}")
    except ModuleNotFoundError as error:
        if options.command not in SERVER_COMMANDS or _is_ours(error.name):
            raise
        print(
            f"espalier {options.command} needs the server's packages ({error.name} is missing); install them with "
            "pip install 'espalier-llm[server]'",
            file=sys.stderr,
        )
        return 1
    code: int = command.main(options.arguments)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="espalier",
        description="Structured text generation over gRPC.",
        epilog="commands:\n" + "\n".join(f"  {name:<10} {text}" for name, text in COMMANDS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"espalier {metadata.version('espalier-llm')}")
    parser.add_argument("command", choices=COMMANDS, metavar="command", help="see below; `espalier COMMAND --help`")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="flags of the command")
    return parser


def _is_ours(module: str | None) -> bool:
    return (module or "").partition(".")[0] in {"service", "engine", "drafters", "grammars", "decoding"}


if __name__ == "__main__":
    sys.exit(main())
