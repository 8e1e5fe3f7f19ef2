"""Flags of `espalier generate` for texts of several parts: tools, structural tags, reasoning.

Invariant: what a file says goes to the client under the names of its dataclasses; an unknown name is an error.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from service.client import Reasoning, StructuralTags, Tag, Tool, ToolCallFormat, ToolCalls

T = TypeVar("T")
CHOICES = ("auto", "required", "none")


def add_structure_kinds(kinds: Any) -> None:
    """The kinds of constraints."""
    kinds.add_argument(
        "--tools",
        type=_tools,
        metavar="FILE|JSON",
        help="calls of these tools: a list of name, description and parameters, or the fields of ToolCalls",
    )
    kinds.add_argument(
        "--structural-tags",
        type=lambda value: _structural_tags(_json(value)),
        metavar="FILE|JSON",
        help="free text and constrained parts: the fields of StructuralTags",
    )


def add_structure_options(group: Any) -> None:
    """What goes beside them."""
    choices = "auto|required|none|NAME"
    group.add_argument("--tool-choice", metavar=choices, help="whether tools are called, or which; auto unless given")
    group.add_argument("--max-calls", type=int, metavar="N", help="most calls; 16, and 1 beside a name, unless given")
    group.add_argument("--reasoning", action="store_true", help="free text first, up to its end")
    group.add_argument("--reasoning-end", metavar="TEXT", help="ends the reasoning; </think> unless given")
    group.add_argument("--reasoning-begin", metavar="TEXT", help="opens the reasoning; nothing does unless given")
    group.add_argument("--reasoning-tokens", type=int, metavar="N", help="most tokens of the reasoning")


def structure_options(options: argparse.Namespace, error: Callable[[str], Any]) -> dict[str, Any]:
    """The client's options that these flags make up; ``error`` ends the program with a message."""
    found: dict[str, Any] = {}
    if options.tools is not None:
        found["tool_calls"] = _calls(options)
    elif options.tool_choice is not None or options.max_calls is not None:
        error("--tool-choice and --max-calls need --tools")
    texts = {"begin": options.reasoning_begin, "end": options.reasoning_end, "max_tokens": options.reasoning_tokens}
    given = {name: value for name, value in texts.items() if value is not None}
    if options.reasoning:
        found["reasoning"] = Reasoning(**given)
    elif given:
        error("--reasoning-begin, --reasoning-end and --reasoning-tokens need --reasoning")
    return found


def _calls(options: argparse.Namespace) -> ToolCalls:
    given: dict[str, Any] = dict(options.tools)
    if options.tool_choice in CHOICES:
        given["choice"] = options.tool_choice
    elif options.tool_choice is not None:
        given["name"] = options.tool_choice
    if options.max_calls is not None:
        given["max_calls"] = options.max_calls
    return ToolCalls(**given)


def _tools(value: str) -> dict[str, Any]:
    """Arguments of `ToolCalls`."""
    read = _json(value)
    given = dict(read) if isinstance(read, Mapping) else {"tools": read}
    listed = given.get("tools")
    if not isinstance(listed, list):
        raise argparse.ArgumentTypeError("tools are no list; give a list of objects with name and parameters")
    given["tools"] = [_made(Tool, item.get("function", item) if isinstance(item, Mapping) else item) for item in listed]
    if "format" in given:
        given["format"] = _made(ToolCallFormat, given["format"])
    _check_names(ToolCalls, given)
    return given


def _structural_tags(read: Any) -> StructuralTags:
    if isinstance(read, Mapping) and isinstance(read.get("tags"), list):
        read = {**read, "tags": [_made(Tag, item) for item in read["tags"]]}
    return _made(StructuralTags, read)


def _made(kind: type[T], read: Any) -> T:
    _check_names(kind, read)
    try:
        return kind(**read)
    except TypeError as error:
        raise argparse.ArgumentTypeError(f"{kind.__name__}: {error}") from error


def _check_names(kind: type[Any], read: Any) -> None:
    if not isinstance(read, Mapping):
        raise argparse.ArgumentTypeError(f"{read!r:.40} is no object with the fields of {kind.__name__}")
    known = [item.name for item in fields(kind)]
    if unknown := sorted(set(read) - set(known)):
        problem = f"{kind.__name__} has no {', '.join(unknown)}; it has {', '.join(known)}"
        raise argparse.ArgumentTypeError(problem)


def _json(value: str) -> Any:
    """JSON text, or what a file holds."""
    try:
        text = value if value.lstrip().startswith(("{", "[")) else Path(value).read_text(encoding="utf-8")
        return json.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise argparse.ArgumentTypeError(f"cannot read {value}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"is no JSON: {error}") from error
