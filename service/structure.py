"""Constraints with several parts from the wire: structural tags, tool calls, reasoning.

Invariant: each schema and pattern keeps the path of the field that it came in, so that errors and reports name it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from decoding.errors import ConstraintError, InvalidRequestError
from grammars.constraint import ConstraintKind, ConstraintSpec
from grammars.structural.spec import TAGS, Reasoning, StructuralTags, Tag
from grammars.structural.tools import NO_ARGUMENTS, TOOLS, Tool, ToolCalls, ToolChoice, ToolFormat
from service.constraint_options import SpecOptions, chosen
from service.v1 import common_pb2 as pb


def structure(message: pb.Constraint, options: SpecOptions) -> StructuralTags | ToolCalls | None:
    """The parts that a constraint asks for, each under ``options``; None for constraints of one part.

    Without a kind that is free text, as it comes after reasoning alone.

    Raises ConstraintError, InvalidRequestError.
    """
    match message.WhichOneof("kind"):
        case "structural_tags":
            return _tags(message.structural_tags, options)
        case "tool_calls":
            return _calls(message.tool_calls, options)
        case None:
            return StructuralTags(tags=())
        case _:
            return None


def reasoning(message: pb.Constraint) -> Reasoning | None:
    """The reasoning before a constraint's text. Raises ConstraintError."""
    if not message.HasField("reasoning"):
        return None
    asked = message.reasoning
    return Reasoning(
        begin=asked.begin,
        end=asked.end or Reasoning().end,
        max_tokens=asked.max_tokens if asked.HasField("max_tokens") else None,
    )


def shown_tools(message: pb.Constraint) -> list[Mapping[str, object]] | None:
    """The tools as chat templates take them (https://huggingface.co/docs/transformers/chat_extras); None for none.

    Raises ConstraintError where a schema is no JSON.
    """
    asked = message.tool_calls
    if message.WhichOneof("kind") != "tool_calls" or (asked.choice == pb.TOOL_CHOICE_NONE and not asked.name):
        return None
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": _parsed(f"{TOOLS}.tools[{index}].parameters", tool.parameters or NO_ARGUMENTS),
            },
        }
        for index, tool in enumerate(asked.tools)
    ]


def _parsed(field: str, text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConstraintError(field, f"is no JSON text: {error}") from error


def _tags(asked: pb.StructuralTags, options: SpecOptions) -> StructuralTags:
    if not asked.tags:
        raise ConstraintError(f"{TAGS}.tags", "is empty; give at least one tag")
    return StructuralTags(
        tags=tuple(_tag(f"{TAGS}.tags[{index}]", tag, options) for index, tag in enumerate(asked.tags)),
        triggers=tuple(asked.triggers),
        least=asked.min_parts,
        most=asked.max_parts if asked.HasField("max_parts") else None,
        before=not asked.no_text_before,
        between=not asked.no_text_between,
        after=not asked.no_text_after,
        separator=asked.separator,
        max_text_tokens=asked.max_text_tokens if asked.HasField("max_text_tokens") else None,
    )


def _tag(path: str, asked: pb.StructuralTag, options: SpecOptions) -> Tag:
    name = asked.WhichOneof("content")
    if name is None:
        raise ConstraintError(path, "has no content; set json_schema, json_object, regex or choices")
    content = ConstraintSpec(
        kind=ConstraintKind(name),
        text=asked.json_schema or asked.regex,
        values=tuple(asked.choices.values),
        **options,
        at=f"{path}.{name}",
    )
    return Tag(begin=asked.begin, end=asked.end, content=content)


def _calls(asked: pb.ToolCalls, options: SpecOptions) -> ToolCalls:
    choice = chosen("tool_calls.choice", asked.choice, pb.ToolChoice.DESCRIPTOR, ToolChoice.AUTO)
    if asked.name and asked.choice:
        raise InvalidRequestError(f"{TOOLS}.choice", "means nothing beside name; leave one of them unset")
    form = asked.format
    return ToolCalls(
        tools=tuple(_tool(f"{TOOLS}.tools[{index}]", tool, options) for index, tool in enumerate(asked.tools)),
        choice=choice,
        name=asked.name,
        most=asked.max_calls if asked.HasField("max_calls") else None,
        format=ToolFormat(begin=form.begin, end=form.end, separator=form.separator, trigger=form.trigger)
        if asked.HasField("format")
        else ToolFormat(),
        max_text_tokens=asked.max_text_tokens if asked.HasField("max_text_tokens") else None,
    )


def _tool(path: str, asked: pb.Tool, options: SpecOptions) -> Tool:
    parameters = ConstraintSpec(
        kind=ConstraintKind.JSON_SCHEMA,
        text=asked.parameters or NO_ARGUMENTS,
        **options,
        at=f"{path}.parameters",
    )
    return Tool(name=asked.name, parameters=parameters)
