"""What xgrammar 0.2.9 ignores of a JSON Schema, with strict_mode=False.

It looks for one *leading* keyword per schema, in the order of `_LEADING`; under ``type`` it reads the keywords of that
type, and all others change nothing. What stands here was found by comparing texts that it accepts with a validator;
`tests/grammars/test_xgrammar.py` repeats that.

Invariant: a keyword that is not reported either holds in every text of the compiled grammar or says nothing of texts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from decoding.errors import ConstraintError
from grammars.backends.outlines_schema import ANNOTATIONS, children, escaped
from grammars.constraint import UnenforcedKeyword

_LEADING = ("$ref", "const", "enum", "anyOf", "oneOf", "allOf", "type")
_BOUNDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_BY_TYPE: Mapping[str, frozenset[str]] = {
    "integer": _BOUNDS,
    "number": _BOUNDS,
    "object": frozenset({"properties", "required", "additionalProperties", "minProperties", "maxProperties"}),
    "array": frozenset({"items", "prefixItems", "minItems", "maxItems"}),
}
_STRING_RULES = (frozenset({"pattern"}), frozenset({"format"}), frozenset({"minLength", "maxLength"}))
_FORMATS = frozenset(
    (
        *("date-time", "date", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri", "uri-reference"),
        *("uri-template", "relative-json-pointer"),
    )
)


def unenforced_keywords(schema: str) -> tuple[UnenforcedKeyword, ...]:
    """Every keyword of ``schema`` that xgrammar does not enforce. Raises ConstraintError where it is not JSON."""
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
            reason = f"xgrammar ignores it beside {leading}" if leading else "xgrammar ignores it without type"
            yield UnenforcedKeyword(pointer=f"{pointer}/{escaped(keyword)}", keyword=keyword, reason=reason)
    for keyword, child in children(schema):
        yield from _walk(child, f"{pointer}/{keyword}")


def _enforced(schema: Mapping[str, Any], leading: str | None) -> frozenset[str]:
    value = schema.get(leading) if leading else None
    if leading is None or (leading in ("allOf", "oneOf") and isinstance(value, list) and len(value) > 1):
        return frozenset()  # of allOf's branches it reads none together, of oneOf's it lets several hold
    if leading == "$ref":
        return frozenset({leading} if str(value).startswith("#") else ())
    if leading != "type":
        return frozenset({leading})
    types = value if isinstance(value, list) else [value]
    return frozenset({"type"}).union(*(_rules(str(name), schema) for name in types))


def _rules(name: str, schema: Mapping[str, Any]) -> frozenset[str]:
    """The keywords that hold for values of a type."""
    if name == "string":
        rules = next((rule for rule in _STRING_RULES if rule.intersection(schema)), frozenset())
        return rules - {"format"} if schema.get("format") not in _FORMATS else rules
    rules = _BY_TYPE.get(name, frozenset())
    required, known = schema.get("required"), schema.get("properties")
    if isinstance(required, list) and not set(required).issubset(known if isinstance(known, dict) else ()):
        return rules - {"required"}  # of keys that are not declared it asks for none
    return rules
