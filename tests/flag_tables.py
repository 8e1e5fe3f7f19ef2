"""The flag tables of README.md, made from the commands' own parsers.

`python -m tests.flag_tables` writes them between their markers, with --check it only says whether they are up to date.
Invariant: the parsers are the one source; nobody edits a table by hand.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
MARKED = re.compile(
    r"(?P<begin><!-- flags of espalier (?P<command>\w+) -->\n).*?(?P<end><!-- end of flags -->)", re.DOTALL
)


def with_tables(text: str) -> str:
    """The same text with every marked table made anew."""
    return MARKED.sub(lambda found: found["begin"] + table(found["command"]) + found["end"], text)


def table(command: str) -> str:
    """Markdown rows of one command: flag, default, meaning."""
    parser: argparse.ArgumentParser = importlib.import_module(f"service.cli.{command}").make_parser()
    rows = ["| flag | default | meaning |", "|---|---|---|"]
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction):
            continue
        meaning = parser._get_formatter()._expand_help(action).removesuffix(f" (default: {action.default})")
        rows.append(f"| {_escape(_syntax(action))} | {_escape(_default(action))} | {_escape(meaning)} |")
    return "\n".join(rows) + "\n"


def _syntax(action: argparse.Action) -> str:
    value = action.metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper())
    if not action.option_strings:
        return f"`{value}`"
    return ", ".join(f"`{option} {value}`" if action.nargs != 0 else f"`{option}`" for option in action.option_strings)


def _default(action: argparse.Action) -> str:
    if isinstance(action, argparse.BooleanOptionalAction):
        return "on" if action.default else "off"
    return "" if action.default is False or action.default in (None, "", []) else f"`{action.default}`"


def _escape(cell: str) -> str:
    return cell.replace("|", r"\|")


def main() -> int:
    """Write or check; 1 where --check finds an old table."""
    text = README.read_text(encoding="utf-8")
    made = with_tables(text)
    if "--check" not in sys.argv[1:]:
        README.write_text(made, encoding="utf-8")
    elif made != text:
        print("README.md has old flag tables; run `make docs`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
