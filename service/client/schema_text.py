"""Schemas as callers write them: the JSON text that is sent, and the parser of the values that come back.

Invariant: a mapping and a text are sent as they are; a type's own schema is closed (`type_schema`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError

from service.client.errors import InvalidArgumentError
from service.client.type_schema import closed_schema

T = TypeVar("T")

Schema: TypeAlias = type[T] | TypeAdapter[T] | Mapping[str, Any] | str
"""A pydantic model or another type that pydantic knows (a dataclass, ``list[Model]``), a TypeAdapter (for unions), or a
JSON Schema as a mapping or as JSON text. Objects of pydantic types have no keys but their fields, unless the type says
``extra="allow"``; a mapping and a text are sent as they are."""

Parser: TypeAlias = Callable[[str], Any]


def schema_text_and_parser(schema: Schema[Any], field: str) -> tuple[str, Parser]:
    """Raises InvalidArgumentError, naming ``field``, where the schema has no JSON form."""
    if isinstance(schema, str):
        return schema, json.loads
    try:
        if isinstance(schema, Mapping):
            return _dump(schema), json.loads
        adapter = schema if isinstance(schema, TypeAdapter) else TypeAdapter(schema)
        return _dump(closed_schema(adapter)), adapter.validate_json
    except (TypeError, ValueError, RecursionError, PydanticUserError) as error:
        message = f"{field}: the schema cannot be written as JSON: {error}"
        raise InvalidArgumentError(message, field) from error


def _dump(schema: Mapping[str, Any]) -> str:
    return json.dumps(schema, ensure_ascii=False, allow_nan=False, default=_mapping_as_dict)


def _mapping_as_dict(value: object) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
