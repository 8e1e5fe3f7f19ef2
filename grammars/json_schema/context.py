"""One schema while its keywords are translated: where it is, what stands beside, and how inner schemas are named.

Invariant: values of keywords are checked for their types before they are used, and an error names the keyword's place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Protocol

from decoding.errors import ConstraintError, UnsupportedConstraintError
from grammars.json_schema.boolean import FALSE, TRUE
from grammars.json_schema.constants import exact
from grammars.json_schema.document import FIELD, Document, Scope, escaped
from grammars.json_schema.leaves import Place
from grammars.json_schema.shapes import Shape
from grammars.json_schema.values import Values


class Reporter(Protocol):
    """Takes note of keywords that are not enforced."""

    @property
    def assert_formats(self) -> bool:
        """Whether formats are asserted."""
        ...

    def report(self, pointer: str, keyword: str, reason: str) -> None:
        """``keyword`` of the schema at ``pointer`` asserts nothing in the compiled grammar."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The schema at `pointer`, reached in the dynamic scope `scope`, which it is part of."""

    document: Document
    values: Values
    reporter: Reporter
    pointer: str
    scope: Scope
    schema: dict[str, Any]

    def goal(self, *path: str | int) -> int:
        """The goal that the schema at this path below asks of a value."""
        return self._goal_at(self.pointer + "".join("/" + escaped(str(token)) for token in path))

    def shape(self, *path: str | int) -> Shape:
        """The shape of the schema at this path below, which applies to the same value."""
        return self.values.shape(self.goal(*path))

    def referred(self, keyword: str) -> Shape:
        """The shape of the schema that a reference names."""
        return self.values.shape(self._goal_at(self._target(keyword)))

    def target(self, keyword: str) -> Context | None:
        """The schema that a reference names, where it is no boolean."""
        return self._at(self._target(keyword))

    def inner(self, *path: str | int) -> Context | None:
        """The schema at this path below, where it is no boolean."""
        return self._at(self.pointer + "".join("/" + escaped(str(token)) for token in path))

    def _target(self, keyword: str) -> str:
        reference = self.string(keyword)
        if keyword == "$ref":
            return self.document.resolve(reference, self.pointer, keyword)
        return self.document.resolve_dynamic(self.pointer, keyword, self.scope)

    def _at(self, place: str) -> Context | None:
        schema = self.document.at(place)
        scope = self.document.entered(self.scope, place)
        return replace(self, pointer=place, scope=scope, schema=schema) if isinstance(schema, dict) else None

    def _goal_at(self, place: str) -> int:
        """The goal of the schema at a place; a bare reference is the schema it names."""
        seen = {place}
        scope = self.scope
        while True:
            scope = self.document.entered(scope, place)
            inner = self.document.at(place)
            if isinstance(inner, bool):
                return TRUE if inner else FALSE
            if not isinstance(inner, dict):
                raise ConstraintError(FIELD, "is no schema; give an object or a boolean", place)
            if not inner:
                return TRUE
            reference = inner.get("$ref")
            if not isinstance(reference, str) or not (len(inner) == 1 or self.document.dialect.ref_stands_alone):
                return self.values.goals.atom(Place(place, scope))
            place = self.document.resolve(reference, place, "$ref")
            if place in seen:
                raise ConstraintError(FIELD, "refers to itself without reading a member or an item in between", place)
            seen.add(place)

    def wrong(self, keyword: str, problem: str) -> ConstraintError:
        """An error at a keyword."""
        return ConstraintError(FIELD, f"{keyword} {problem}", f"{self.pointer}/{escaped(keyword)}")

    def unsupported(self, keyword: str, problem: str) -> UnsupportedConstraintError:
        """A refusal of a keyword."""
        return UnsupportedConstraintError(FIELD, f"{keyword} {problem}", f"{self.pointer}/{escaped(keyword)}")

    def string(self, keyword: str) -> str:
        """The keyword's value, a string."""
        value = self.schema[keyword]
        if not isinstance(value, str):
            raise self.wrong(keyword, "must be a string")
        return value

    def pattern(self, keyword: str, pattern: str) -> int:
        """The formula of an ECMA-262 pattern that stands in a keyword's value."""
        try:
            return self.values.languages.matches(pattern)
        except UnsupportedConstraintError as error:
            raise self.unsupported(keyword, f"has the pattern {pattern!r}: {error.bare_message}") from error
        except ConstraintError as error:
            raise self.wrong(keyword, f"has the pattern {pattern!r}: {error.bare_message}") from error

    def flag(self, keyword: str) -> bool:
        """The keyword's value, a boolean."""
        value = self.schema[keyword]
        if not isinstance(value, bool):
            raise self.wrong(keyword, "must be true or false")
        return value

    def number(self, keyword: str) -> Decimal:
        """The keyword's value, a number."""
        value = self.schema[keyword]
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            raise self.wrong(keyword, "must be a number")
        return exact(value)

    def count(self, keyword: str) -> int:
        """The keyword's value, an integer of at least 0."""
        value = self.number(keyword)
        if value < 0 or value != value.to_integral_value():
            raise self.wrong(keyword, "must be an integer of at least 0")
        return int(value)

    def schemas(self, keyword: str) -> int:
        """The length of the keyword's value, a list of schemas with at least one."""
        value = self.schema[keyword]
        if not isinstance(value, list) or not value:
            raise self.wrong(keyword, "must be a list of schemas that is not empty")
        return len(value)

    def mapping(self, keyword: str) -> dict[str, Any]:
        """The keyword's value, an object."""
        value = self.schema[keyword]
        if not isinstance(value, dict):
            raise self.wrong(keyword, "must be an object")
        return value

    def names(self, keyword: str, value: Any) -> list[str]:
        """``value``, which is or stands in the keyword's value, as a list of distinct property names."""
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise self.wrong(keyword, "must hold lists of strings")
        return list(dict.fromkeys(value))


Translate = Callable[[Context], Shape | None]
"""What a keyword says; None where it asserts nothing."""
