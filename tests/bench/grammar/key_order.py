"""A value with the keys of its objects in the order in which a schema declares them.

Owns the order that a reader of the schema expects: keys of `properties` as they stand, those of a schema before those
of the schemas it combines, all other keys after them as they were. Invariant: only the order of keys changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

_IN_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
_IN_PLACE = ("if", "then", "else", "not")
_IN_PLACE_BY_KEY = ("dependentSchemas", "dependencies")


class KeyOrder:
    """The order that one schema gives to the keys of its instances; references outside of it are ignored."""

    def __init__(self, schema: Any) -> None:
        self._root = schema

    def arrange(self, value: Any) -> Any:
        """The same value, ordered at every depth."""
        return self._arrange(value, self._applied([self._root]))

    def _arrange(self, value: Any, schemas: list[dict[str, Any]]) -> Any:
        if isinstance(value, dict):
            declared = dict.fromkeys(key for schema in schemas for key in _mapping(schema, "properties"))
            keys = [key for key in declared if key in value] + [key for key in value if key not in declared]
            return {key: self._arrange(value[key], self._applied(_of_member(schemas, key))) for key in keys}
        if isinstance(value, list):
            return [
                self._arrange(item, self._applied(_of_item(schemas, position))) for position, item in enumerate(value)
            ]
        return value

    def _applied(self, schemas: Iterable[Any]) -> list[dict[str, Any]]:
        """These schemas and all that they apply to the same value, each once, outer ones first."""
        found: dict[int, dict[str, Any]] = {}
        pending = list(schemas)
        while pending:
            schema = pending.pop(0)
            if not isinstance(schema, dict) or id(schema) in found:
                continue
            found[id(schema)] = schema
            inner = [self._resolved(schema["$ref"])] if "$ref" in schema else []
            inner += [part for name in _IN_PLACE_LISTS for part in _sequence(schema, name)]
            inner += [schema[name] for name in _IN_PLACE if name in schema]
            inner += [part for name in _IN_PLACE_BY_KEY for part in _mapping(schema, name).values()]
            pending[:0] = inner  # depth first: what a branch refers to comes before the next branch
        return list(found.values())

    def _resolved(self, reference: Any) -> Any:
        """The schema that a pointer within the document names, or True, which says nothing."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            return True
        current = self._root
        for part in unquote(reference[1:]).split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(current, dict) and key in current:
                current = current[key]
            elif isinstance(current, list) and key.isdecimal() and int(key) < len(current):
                current = current[int(key)]
            else:
                return True
        return current


def _of_member(schemas: list[dict[str, Any]], key: str) -> list[Any]:
    found: list[Any] = []
    for schema in schemas:
        named = [_mapping(schema, "properties")[key]] if key in _mapping(schema, "properties") else []
        named += [part for pattern, part in _mapping(schema, "patternProperties").items() if _matches(pattern, key)]
        found += named or [schema.get("additionalProperties", schema.get("unevaluatedProperties", True))]
    return found


def _of_item(schemas: list[dict[str, Any]], position: int) -> list[Any]:
    found: list[Any] = []
    for schema in schemas:
        items = schema.get("items", True)
        prefix = items if isinstance(items, list) else _sequence(schema, "prefixItems")
        if position < len(prefix):
            found.append(prefix[position])
        else:
            found.append(schema.get("additionalItems", True) if isinstance(items, list) else items)
        found.append(schema.get("contains", True))
    return found


def _matches(pattern: str, key: str) -> bool:
    """Whether a pattern fits, as far as Python reads it: one that it does not read orders nothing."""
    try:
        return re.search(pattern, key) is not None
    except re.error:
        return False


def _mapping(schema: dict[str, Any], name: str) -> dict[str, Any]:
    value = schema.get(name)
    return value if isinstance(value, dict) else {}


def _sequence(schema: dict[str, Any], name: str) -> list[Any]:
    value = schema.get(name)
    return value if isinstance(value, list) else []
