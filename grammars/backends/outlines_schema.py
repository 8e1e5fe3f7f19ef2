"""What outlines-core 0.2.14 ignores of a JSON Schema.

It looks for one *leading* keyword per schema, in the order of `_LEADING`, and reads a few siblings of it; all others
change nothing (json_schema/parsing.rs in its source).

Invariant: a keyword that is not reported either holds in every text of the compiled grammar or says nothing of texts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from decoding.errors import ConstraintError
from grammars.constraint import UnenforcedKeyword

ANNOTATIONS = frozenset(
    (
        *("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"),
        *("$schema", "$id", "$comment", "$anchor", "$defs", "definitions"),
    )
)
# leading keyword -> siblings that hold as well (an object with properties is closed: additionalProperties cannot fail)
_LEADING: Mapping[str, frozenset[str]] = {
    "properties": frozenset({"required", "additionalProperties"}),
    "allOf": frozenset(),
    "anyOf": frozenset(),
    "oneOf": frozenset(),
    "prefixItems": frozenset({"items"}),
    "enum": frozenset(),
    "const": frozenset(),
    "$ref": frozenset(),
    "type": frozenset(),
}
_BY_TYPE: Mapping[str, frozenset[str]] = {
    "object": frozenset({"additionalProperties", "minProperties", "maxProperties"}),
    "array": frozenset({"items", "minItems", "maxItems"}),
}
_STRING_RULES = (frozenset({"minLength", "maxLength"}), frozenset({"pattern"}), frozenset({"format"}))
_CHILDREN = ("items", "additionalProperties")
_CHILD_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_CHILD_MAPS = ("properties", "$defs", "definitions")


def unenforced_keywords(schema: str) -> tuple[UnenforcedKeyword, ...]:
    """Every keyword of ``schema`` that outlines-core does not enforce. Raises ConstraintError where it is not JSON."""
    try:
        parsed = json.loads(schema)
    except ValueError as error:
        raise ConstraintError("constraint.json_schema", f"is not JSON: {error}") from error
    return tuple(_walk(parsed, ""))


def _walk(schema: Any, pointer: str) -> Iterator[UnenforcedKeyword]:
    if not isinstance(schema, dict):
        return
    leading = next((keyword for keyword in _LEADING if keyword in schema), None)
    enforced = _enforced(schema, leading)
    for keyword in schema:
        if keyword not in enforced and keyword not in ANNOTATIONS:
            reason = f"outlines-core ignores it beside {leading}" if leading else "outlines-core does not know it"
            yield UnenforcedKeyword(pointer=f"{pointer}/{escaped(keyword)}", keyword=keyword, reason=reason)
    for keyword, child in children(schema):
        yield from _walk(child, f"{pointer}/{keyword}")


def _enforced(schema: Mapping[str, Any], leading: str | None) -> frozenset[str]:
    if leading is None or (leading in ("allOf", "oneOf") and len(schema[leading]) > 1):
        return frozenset()  # it joins the texts of allOf's branches and lets several of oneOf's hold
    if leading == "properties":
        implied = {"type"} if schema.get("type") == "object" else set()
        return _LEADING[leading] | {leading} | implied
    if leading == "type":
        rules = _BY_TYPE.get(str(schema["type"]), frozenset())
        if schema["type"] == "string":
            rules = next((rule for rule in _STRING_RULES if rule.intersection(schema)), frozenset())
        return rules | {leading}
    return _LEADING[leading] | {leading}


def children(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The subschemas that these libraries read, and their places within ``schema``."""
    for keyword in _CHILDREN:
        if keyword in schema:
            yield keyword, schema[keyword]
    for keyword in _CHILD_LISTS:
        if isinstance(schema.get(keyword), list):
            yield from ((f"{keyword}/{index}", child) for index, child in enumerate(schema[keyword]))
    for keyword in _CHILD_MAPS:
        if isinstance(schema.get(keyword), dict):
            yield from ((f"{keyword}/{escaped(name)}", child) for name, child in schema[keyword].items())


def escaped(name: str) -> str:
    """RFC 6901, section 3."""
    return name.replace("~", "~0").replace("/", "~1")
