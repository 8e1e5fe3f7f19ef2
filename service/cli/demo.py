"""`espalier demo`: start a server, send it constrained requests at once, check every answer, stop the server.

Invariant: exit code 0 means that every answer was complete and passed an independent check.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, Group
from rich.json import JSON
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from service.cli.child_server import ChildServerError, child_server, free_loopback_address
from service.cli.demo_requests import Scenario, free_chat, scenarios
from service.cli.outcome import ExitCode, finish, say
from service.cli.stopwatch import Stopwatch, Timing
from service.client import AsyncClient, Completeness, Generation


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one scenario; `problem` is empty where the answer is valid."""

    scenario: Scenario
    generation: Generation
    timing: Timing
    problem: str


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command."""
    made = argparse.ArgumentParser(
        prog="espalier demo",
        description="Start a server, send it constrained requests at once, and check every answer independently. "
        "Other flags are handed to `espalier serve`.",
        allow_abbrev=False,
    )
    made.add_argument(
        "--startup-timeout", type=float, default=1800.0, metavar="SECONDS", help="for fetching, converting and loading"
    )
    return made


def main(argv: Sequence[str]) -> int:
    """Run the command; the exit code is an ExitCode."""
    options, serve_flags = make_parser().parse_known_args(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C: the server is stopped on the way out
    return finish(lambda: _run(options.startup_timeout, serve_flags))


def _run(startup_timeout: float, serve_flags: Sequence[str]) -> int:
    console = Console()
    console.print("Starting a server; the first start fetches the default model.")
    address = free_loopback_address()
    quiet = ["--log-level", "warning"]  # a line for each request would tear the streamed text apart
    command = [sys.executable, "-m", "service.cli.main", "serve", "--address", address, *quiet, *serve_flags]
    try:
        with child_server(command, address, startup_timeout=startup_timeout):
            outcomes = asyncio.run(_ask_all(address, console))
    except ChildServerError as error:
        say(str(error))
        return ExitCode.FAILED
    for outcome in outcomes:
        console.print(_panel(outcome))
    console.print(_table(outcomes))
    return ExitCode.FAILED if any(outcome.problem for outcome in outcomes) else ExitCode.OK


async def _ask_all(address: str, console: Console) -> list[Outcome]:
    """All requests at once; the free text is printed while the constrained ones run beside it."""
    constrained, free = scenarios(), free_chat()
    async with AsyncClient(address) as client:
        console.print(f"Serving at {address}. {len(constrained)} constrained requests run while this chat streams:\n")
        console.print(free.prompt, style="dim")
        return list(
            await asyncio.gather(
                *(_ask(client, scenario) for scenario in constrained), _ask(client, free, echo=console)
            )
        )


async def _ask(client: AsyncClient, scenario: Scenario, echo: Console | None = None) -> Outcome:
    watch = Stopwatch()
    async with client.stream(schema=scenario.schema, **scenario.request) as stream:
        async for event in stream:
            watch.see(event)
            if echo is not None:
                echo.out(event.text, end="", highlight=False)
    generation = await stream.result()
    if echo is not None:
        echo.print("\n")
    timing = watch.timing(generation.usage.completion_tokens)
    return Outcome(scenario=scenario, generation=generation, timing=timing, problem=_problem(scenario, generation))


def _problem(scenario: Scenario, generation: Generation) -> str:
    sample = generation.samples[0]
    if sample.completeness is Completeness.VALID_PREFIX:
        return f"incomplete ({sample.finish_reason.value})"
    return scenario.check(generation.text)


def _panel(outcome: Outcome) -> Panel:
    text = outcome.generation.text
    valid = "[red]✗[/] " + outcome.problem if outcome.problem else f"[green]✓[/] {outcome.scenario.checked_by}"
    answer = JSON(text) if outcome.scenario.schema is not None and not outcome.problem else Text(text)
    return Panel(
        Group(Text(outcome.scenario.prompt, style="dim"), "", answer),
        title=outcome.scenario.title,
        title_align="left",
        subtitle=f"{valid} · TTFT {_milliseconds(outcome)} ms · {outcome.timing.tokens_per_second:.1f} tokens/s",
        subtitle_align="right",
    )


def _table(outcomes: Sequence[Outcome]) -> Table:
    table = Table(title="Concurrent requests over gRPC")
    for name in ("request", "checked by", "valid"):
        table.add_column(name)
    for name in ("tokens", "TTFT ms", "tokens/s"):
        table.add_column(name, justify="right")
    for outcome in outcomes:
        table.add_row(
            outcome.scenario.title,
            outcome.scenario.checked_by,
            "no" if outcome.problem else "yes",
            str(outcome.generation.usage.completion_tokens),
            _milliseconds(outcome),
            f"{outcome.timing.tokens_per_second:.1f}",
        )
    return table


def _milliseconds(outcome: Outcome) -> str:
    return "—" if outcome.timing.ttft_s is None else f"{outcome.timing.ttft_s * 1000:.0f}"
