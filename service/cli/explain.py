"""`espalier explain`: what a constraint means, from the server that would enforce it.

Invariant: --json carries every field of `service.client.Explanation`; the text shows the same.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterator, Sequence

from service.cli.connection_flags import add_connection_flags
from service.cli.generate_flags import add_constraint_flags, constraint_options
from service.cli.outcome import ExitCode, finish
from service.client import Client, Explanation
from service.client.constraint import ConstraintOptions


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command."""
    made = argparse.ArgumentParser(
        prog="espalier explain",
        description="Say what a constraint means, with a shortest text that it allows.",
        allow_abbrev=False,
    )
    add_constraint_flags(made)
    made.add_argument("--model", default="", metavar="NAME", help="the server's model unless given")
    made.add_argument("--json", action="store_true", dest="as_json", help="print one JSON object instead of text")
    add_connection_flags(made)
    return made


def main(argv: Sequence[str]) -> int:
    """Run the command; the exit code is an ExitCode."""
    made = make_parser()
    options = made.parse_args(argv)
    constraint = constraint_options(options, made.error)
    return finish(lambda: _run(options, constraint))


def _run(options: argparse.Namespace, constraint: ConstraintOptions) -> int:
    with Client(options.address, timeout=options.timeout) as client:
        explanation = client.explain(schema=options.schema, model=options.model, **constraint)
    if options.as_json:
        print(json.dumps(dataclasses.asdict(explanation), ensure_ascii=False))
    else:
        print("\n".join(_lines(explanation)))
    return ExitCode.OK


def _lines(explanation: Explanation) -> Iterator[str]:
    if explanation.normalised:
        yield f"normalised    {explanation.normalised}"
    yield f"states        {explanation.states:,}, {explanation.size_bytes:,} bytes"
    if explanation.shortest is not None:
        yield f"shortest      {explanation.shortest}"
        yield f"its tokens    {explanation.shortest_tokens}"
    for enforced in explanation.enforced:
        yield f"enforced      {enforced.pointer}"
    for unenforced in explanation.unenforced:
        yield f"not enforced  {unenforced.pointer}: {unenforced.reason}"
