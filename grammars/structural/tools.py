"""Tool calls: a list of tools, which of them must be called, and how a call is written.

Invariant: tools come down to structural tags, one for each tool, so that a call is a part like any other.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, replace

from decoding.errors import ConstraintError
from grammars.constraint import ConstraintSpec, check_text
from grammars.structural.spec import MAX_PARTS, MAX_TAGS, StructuralTags, Tag

TOOLS = "constraint.tool_calls"
PLACE = "{name}"
"""What stands for the tool's name in a format."""
NO_ARGUMENTS = '{"type":"object","properties":{},"additionalProperties":false}'
"""The parameters of a tool that has none."""
MAX_CALLS = 16
"""Most calls of one answer, unless the caller says otherwise."""
MAX_NAME_CHARS = 128


class ToolChoice(enum.Enum):
    """Whether tools are called."""

    AUTO = "auto"
    """Free text, calls, or both, the text first."""
    REQUIRED = "required"
    """At least one call, and nothing but calls."""
    NONE = "none"
    """Free text that begins no call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFormat:
    r"""How a call is written: `begin`, the arguments as a JSON object, `end`; the default is Hermes' and Qwen's.

    Attributes:
        begin: with the tool's name where ``{name}`` stands, which is there once.
        end: after the arguments.
        separator: between calls.
        trigger: free text that contains it goes on as a call; `begin` starts with it. Empty stands for what comes
            before ``{name}``.
    """

    begin: str = '<tool_call>\n{"name": "{name}", "arguments": '
    end: str = "}\n</tool_call>"
    separator: str = "\n"
    trigger: str = "<tool_call>"

    def __post_init__(self) -> None:
        for name in ("begin", "end", "separator", "trigger"):
            check_text(f"{TOOLS}.format.{name}", getattr(self, name))
        if self.begin.count(PLACE) != 1:
            raise ConstraintError(f"{TOOLS}.format.begin", f"has {PLACE} {self.begin.count(PLACE)} times; give it once")
        if not self.start:
            raise ConstraintError(f"{TOOLS}.format.begin", f"starts with {PLACE}; put before it what announces a call")
        if not self.begin.partition(PLACE)[0].startswith(self.start):
            raise ConstraintError(f"{TOOLS}.format.trigger", f"must be the start of begin, before {PLACE}")

    @property
    def start(self) -> str:
        """The trigger, or what it stands for."""
        return self.trigger or self.begin.partition(PLACE)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool.

    Attributes:
        name: as the model writes it.
        parameters: JSON Schema of its arguments, which are an object.
    """

    name: str
    parameters: ConstraintSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCalls:
    """Calls of tools.

    Attributes:
        tools: at least one.
        choice: whether they are called.
        name: the only tool that may be called, and must be; empty for any. `choice` does not matter then.
        most: how many calls; None for `MAX_CALLS`, or for 1 beside `name`.
        format: how a call is written.
        max_text_tokens: after so many tokens of free text, it must end; None for no limit.
    """

    tools: tuple[Tool, ...]
    choice: ToolChoice = ToolChoice.AUTO
    name: str = ""
    most: int | None = None
    format: ToolFormat = ToolFormat()
    max_text_tokens: int | None = None

    def __post_init__(self) -> None:
        if not self.tools:
            raise ConstraintError(f"{TOOLS}.tools", "is empty; give at least one tool")
        if len(self.tools) > MAX_TAGS:
            raise ConstraintError(f"{TOOLS}.tools", f"has {len(self.tools)} tools; the limit is {MAX_TAGS}")
        seen: dict[str, int] = {}
        for index, tool in enumerate(self.tools):
            _check_name(f"{TOOLS}.tools[{index}].name", tool.name)
            if tool.name in seen:
                path = f"{TOOLS}.tools[{index}].name"
                raise ConstraintError(path, f"is also that of tools[{seen[tool.name]}]; give each tool its own")
            seen[tool.name] = index
        if self.name and self.name not in seen:
            raise ConstraintError(f"{TOOLS}.name", f"{self.name!r} is none of the tools; use the name of one of them")
        if self.most is not None and not 1 <= self.most <= MAX_PARTS:
            raise ConstraintError(f"{TOOLS}.max_calls", f"is {self.most}; it must be in [1, {MAX_PARTS}]")
        self.tags()

    def contents(self) -> Iterator[ConstraintSpec]:
        """The schemas of the arguments."""
        return (tool.parameters for tool in self.tools)

    def normalised(self) -> ToolCalls:
        """An equal one, with schemas spelled the one way that `ConstraintSpec.key` hashes."""
        return replace(self, tools=tuple(replace(tool, parameters=tool.parameters.normalised()) for tool in self.tools))

    def key_parts(self) -> Iterator[str]:
        """What tells two apart, for `ConstraintSpec.key`."""
        return self.tags().key_parts()

    def tags(self) -> StructuralTags:
        """The same as structural tags."""
        called = () if self.choice is ToolChoice.NONE and not self.name else self.tools
        tags = tuple(self._tag(tool) for tool in called if self.name in ("", tool.name))
        must = bool(self.name) or self.choice is ToolChoice.REQUIRED
        return StructuralTags(
            tags=tags,
            triggers=(self.format.start,),
            least=1 if must else 0,
            most=(self.most or (1 if self.name else MAX_CALLS)) if tags else 0,
            before=not must,
            between=False,
            after=False,
            separator=self.format.separator,
            max_text_tokens=self.max_text_tokens,
            source=TOOLS,
        )

    def _tag(self, tool: Tool) -> Tag:
        return Tag(
            begin=self.format.begin.replace(PLACE, tool.name),
            end=self.format.end,
            content=tool.parameters,
            name=tool.name,
            only_objects=True,
        )


def _check_name(path: str, name: str) -> None:
    check_text(path, name)
    if not name:
        raise ConstraintError(path, "is empty; give the tool's name")
    if len(name) > MAX_NAME_CHARS or not all(char.isalnum() or char in "_-.:/" for char in name):
        allowed = "letters, digits, _, -, ., : and /"
        raise ConstraintError(path, f"{name[:40]!r} is no name; use at most {MAX_NAME_CHARS} {allowed}")
