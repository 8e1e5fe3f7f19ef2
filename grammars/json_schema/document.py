"""A schema as a document: parsed, bounded, and its references resolved to places in it.

Places are canonical JSON pointers (RFC 6901) from the root. Invariant: no place outside the document is ever looked
at; a reference to one is refused.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any, NoReturn
from urllib.parse import unquote, urldefrag, urljoin

from decoding.errors import ConstraintError, UnsupportedConstraintError
from grammars.constraint import ConstraintKind, ConstraintSpec
from grammars.json_schema.dialect import Dialect, dialect_of
from grammars.limits import ConstraintLimits

FIELD = "constraint.json_schema"

Schema = bool | dict[str, Any]

Scope = tuple[tuple[str, str], ...]
"""The dynamic anchors of the resources on the way to a schema, with the place of each in the first one that has it."""

MAX_DIGITS = 4300
"""Most digits of a number before or after the point; Python's own limit for integers."""

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""An escape for half a character."""
_LONE = re.compile("[\ud800-\udfff]")

_RECURSIVE = ""
"""Stands for `$recursiveAnchor` among the names of dynamic anchors."""


class Document:
    """A parsed schema.

    Attributes:
        root: the schema at place "".
        dialect: which draft's rules it follows.
    """

    def __init__(self, schema: str | Schema, limits: ConstraintLimits) -> None:
        self.root = _parsed(schema, limits)
        if not isinstance(self.root, bool | dict):
            raise ConstraintError(FIELD, f"is {_kind(self.root)}; a schema is an object or a boolean")
        self.dialect: Dialect = dialect_of(self.root)
        self._bases: dict[str, str] = {}
        self._named: dict[str, str] | None = None
        self._dynamic: dict[str, dict[str, str]] | None = None

    def at(self, pointer: str) -> Any:
        """The JSON value at a place; raises KeyError where there is none."""
        value: Any = self.root
        for token in _tokens(pointer):
            if isinstance(value, dict):
                value = value[token]
            elif isinstance(value, list) and token.isdecimal() and int(token) < len(value):
                value = value[int(token)]
            else:
                raise KeyError(pointer)
        return value

    def resolve(self, reference: str, pointer: str, keyword: str) -> str:
        """The place that ``reference``, a keyword of the schema at ``pointer``, refers to.

        Raises ConstraintError where there is none, UnsupportedConstraintError where it is outside the document.
        """
        place = f"{pointer}/{keyword}"
        base = self._base(pointer)
        resource, fragment = urldefrag(reference if reference.startswith("#") else urljoin(base, reference))
        resource = resource or base
        fragment = unquote(fragment)
        if resource in ("", self._base("")):
            start: str | None = ""
        else:
            start = self._names().get(resource)
        if start is None:
            raise UnsupportedConstraintError(
                FIELD, f"{keyword} {reference!r} is outside the schema; put what it names under $defs", place
            )
        if fragment and not fragment.startswith("/"):
            target = self._names().get(f"{resource}#{fragment}")
        else:
            target = self._canonical(start, fragment)
        if target is None:
            raise ConstraintError(FIELD, f"{keyword} {reference!r} names nothing in the schema", place)
        return target

    def resolve_dynamic(self, pointer: str, keyword: str, scope: Scope) -> str:
        """The place that a `$dynamicRef` or `$recursiveRef` at ``pointer`` refers to, reached by way of ``scope``.

        Where it names a dynamic anchor, that is the place of the anchor in the resource of the scope that was entered
        first among those that have it (2020-12 core, section 8.2.3.2; 2019-09 core, section 8.2.4.2.2).
        """
        reference = self.at(pointer)[keyword]
        target = self.resolve(reference, pointer, keyword)
        anchor = _RECURSIVE if keyword == "$recursiveRef" else reference.rpartition("#")[2]
        if anchor not in _dynamic_anchors(self.at(target)):
            return target
        return dict(scope).get(anchor, target)

    def entered(self, scope: Scope, pointer: str) -> Scope:
        """``scope`` after the schema at ``pointer`` was entered."""
        if self._dynamic is None:
            self._dynamic = {}
            for place, inner in self._schemas() if _has_dynamic_anchors(self.root) else ():
                for anchor in _dynamic_anchors(inner):
                    self._dynamic.setdefault(self._resource(place), {}).setdefault(anchor, place)
        if not self._dynamic:
            return scope
        own = self._dynamic.get(self._resource(pointer), {})
        return tuple(sorted((own | dict(scope)).items()))

    def _resource(self, pointer: str) -> str:
        """The place of the schema with the `$id` that is in force at a place."""
        while pointer:
            value = self.at(pointer)
            own = value.get(self.dialect.id_keyword) if isinstance(value, dict) else None
            if isinstance(own, str) and not own.startswith("#") and not self._is_instance(pointer):
                break
            pointer = pointer.rpartition("/")[0]
        return pointer

    def _schemas(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Every object that may be a schema, with its place."""
        pending: list[tuple[str, Any]] = [("", self.root)]
        while pending:
            pointer, value = pending.pop()
            if isinstance(value, dict):
                if not self._is_instance(pointer):
                    yield pointer, value
                pending.extend((f"{pointer}/{escaped(key)}", inner) for key, inner in value.items())
            elif isinstance(value, list):
                pending.extend((f"{pointer}/{index}", inner) for index, inner in enumerate(value))

    def _canonical(self, start: str, fragment: str) -> str | None:
        pointer = start + "".join("/" + escaped(token) for token in _tokens(fragment))
        try:
            self.at(pointer)
        except KeyError:
            return None
        return pointer

    def _base(self, pointer: str) -> str:
        """The base URI in force at a place (2020-12 core, section 8.2)."""
        known = self._bases.get(pointer)
        if known is None:
            parent = self._base(pointer.rpartition("/")[0]) if pointer else ""
            value = self.at(pointer)
            own = value.get(self.dialect.id_keyword) if isinstance(value, dict) else None
            if self.dialect.ref_stands_alone and isinstance(value, dict) and "$ref" in value:
                own = None
            known = parent
            if isinstance(own, str) and not own.startswith("#") and not self._is_instance(pointer):
                known = urldefrag(urljoin(parent, own))[0]
            self._bases[pointer] = known
        return known

    def _is_instance(self, pointer: str) -> bool:
        """Whether a place lies in example data or is the name of a property, where `$id` means nothing."""
        tokens = _tokens(pointer)
        return any(token in ("enum", "const", "default", "examples") for token in tokens[:-1]) or (
            bool(tokens) and tokens[-1] in ("properties", "$defs", "definitions", "patternProperties")
        )

    def _names(self) -> dict[str, str]:
        """Places by absolute URI: every `$id`, and every anchor as URI#anchor."""
        if self._named is None:
            self._named = {}
            for pointer, value in self._schemas():
                self._name(pointer, value)
        return self._named

    def _name(self, pointer: str, value: dict[str, Any]) -> None:
        assert self._named is not None
        base = self._base(pointer)
        own = value.get(self.dialect.id_keyword)
        if isinstance(own, str):
            if own.startswith("#"):
                self._named.setdefault(base + own, pointer)
            else:
                self._named.setdefault(base, pointer)
        for keyword in ("$anchor", "$dynamicAnchor"):
            anchor = value.get(keyword)
            if isinstance(anchor, str):
                self._named.setdefault(f"{base}#{anchor}", pointer)


def _dynamic_anchors(schema: Any) -> list[str]:
    """The names of the dynamic anchors of a schema itself."""
    if not isinstance(schema, dict):
        return []
    anchor = schema.get("$dynamicAnchor")
    named = [anchor] if isinstance(anchor, str) and anchor else []
    return [*named, _RECURSIVE] if schema.get("$recursiveAnchor") is True else named


def _has_dynamic_anchors(root: Any) -> bool:
    """Whether there may be any; quick, since hardly a document has them."""
    pending = [root]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            if "$dynamicAnchor" in value or "$recursiveAnchor" in value:
                return True
            pending += value.values()
        elif isinstance(value, list):
            pending += value
    return False


def escaped(token: str) -> str:
    """A key as a token of a JSON pointer."""
    return token.replace("~", "~0").replace("/", "~1")


def _tokens(pointer: str) -> list[str]:
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]


def _parsed(schema: Any, limits: ConstraintLimits) -> Any:
    if not isinstance(schema, str):
        _check_plain(schema, limits)
        schema = json.dumps(schema)
    spec = ConstraintSpec(kind=ConstraintKind.JSON_SCHEMA, text=schema)
    limits.check(spec)
    try:
        root = json.loads(
            schema, parse_float=_decimal, parse_constant=_not_json, object_pairs_hook=_without_repeated_keys
        )
    except (ValueError, RecursionError) as error:
        if isinstance(error, ConstraintError):
            raise
        raise ConstraintError(FIELD, f"is not JSON: {error}") from error
    if _SURROGATE.search(schema):
        _refuse_lone_surrogates(root)
    return root


def _refuse_lone_surrogates(root: Any) -> None:
    """JSON can escape half a character, which no text in UTF-8 holds (RFC 8259, section 8.2)."""
    pending: list[tuple[Any, str]] = [(root, "")]
    while pending:
        value, pointer = pending.pop()
        texts: Iterable[Any] = (value,)
        if isinstance(value, dict):
            texts = value
            pending += ((item, f"{pointer}/{escaped(key)}") for key, item in value.items())
        elif isinstance(value, list):
            pending += ((item, f"{pointer}/{index}") for index, item in enumerate(value))
        if any(isinstance(text, str) and _LONE.search(text) for text in texts):
            raise ConstraintError(FIELD, "has a lone surrogate; give both halves of the character", pointer)


def _check_plain(schema: Any, limits: ConstraintLimits) -> None:
    """Bound a Python value before anything recursive sees it."""
    pending: list[tuple[Any, int]] = [(schema, 1)]
    count = 0
    while pending:
        value, depth = pending.pop()
        count += 1
        if depth > limits.depth:
            raise ConstraintError(FIELD, f"has more than {limits.depth} levels of nesting")
        if count > limits.nodes:
            raise ConstraintError(FIELD, f"has more than {limits.nodes} values")
        if isinstance(value, dict):
            if not all(isinstance(key, str) for key in value):
                raise ConstraintError(FIELD, "has a key that is not a string")
            pending.extend((inner, depth + 1) for inner in value.values())
        elif isinstance(value, list):
            pending.extend((inner, depth + 1) for inner in value)
        elif value is not None and not isinstance(value, str | int | float):
            raise ConstraintError(FIELD, f"holds a {type(value).__name__}; give JSON values")


def _without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        repeated = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ConstraintError(FIELD, f"has the key {repeated!r} twice in one object; give each key once")
    return value


def _decimal(text: str) -> Decimal:
    """A number with a point or an exponent; what it would take to write it out is bounded."""
    value = Decimal(text)
    if abs(value.adjusted()) > MAX_DIGITS or len(value.as_tuple().digits) > MAX_DIGITS:
        raise ConstraintError(FIELD, f"holds the number {text[:40]}, which has more than {MAX_DIGITS} digits")
    return value


def _not_json(constant: str) -> NoReturn:
    raise ConstraintError(FIELD, f"holds {constant}, which is not JSON")


def _kind(value: Any) -> str:
    names = {type(None): "null", list: "an array", str: "a string", int: "a number", Decimal: "a number"}
    return names[type(value)]
