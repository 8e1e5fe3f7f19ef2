"""Keywords to shapes: what one schema says, in terms of the schemas inside it.

Schemas that apply to the same value (allOf, anyOf, $ref, ...) are taken in at once; schemas of members and items stay
references, as goals. Invariant: every keyword of a schema is translated, known to assert nothing, or reported; none is
dropped in silence.
"""

from __future__ import annotations

from typing import Any

from decoding.errors import ConstraintError, UnsupportedConstraintError
from grammars.constraint import EnforcedKeyword, UnenforcedKeyword
from grammars.json_schema.context import Context, Translate
from grammars.json_schema.document import FIELD, Document, escaped
from grammars.json_schema.keywords import KEYWORDS, SILENT, TOGETHER
from grammars.json_schema.leaves import Place
from grammars.json_schema.shapes import ANYTHING, NOTHING, Shape
from grammars.json_schema.values import Values

MAX_IN_PLACE = 48
"""Most schemas that apply to one value, one by way of the other: allOf in $ref in anyOf and so on."""


class Translator:
    """Translates the schemas of one document."""

    def __init__(self, document: Document, *, best_effort: bool, assert_formats: bool = True) -> None:
        self.document = document
        self.assert_formats = assert_formats
        self.unenforced: dict[tuple[str, str], UnenforcedKeyword] = {}
        self._enforced: dict[tuple[str, str], None] = {}
        self._best_effort = best_effort
        self._open: list[Place] = []

    def __call__(self, values: Values, place: Place) -> Shape:
        """The shape of the schema at ``place``."""
        pointer = place.pointer
        if place in self._open:
            raise ConstraintError(FIELD, "refers to itself without reading a member or an item in between", pointer)
        if len(self._open) == MAX_IN_PLACE:
            raise ConstraintError(
                FIELD, f"applies more than {MAX_IN_PLACE} schemas to one value, one in another", pointer
            )
        self._open.append(place)
        try:
            return self._shape(values, place, self.document.at(pointer))
        finally:
            self._open.pop()

    def _shape(self, values: Values, place: Place, schema: Any) -> Shape:
        pointer = place.pointer
        if isinstance(schema, bool):
            return ANYTHING if schema else NOTHING
        if not isinstance(schema, dict):
            raise ConstraintError(FIELD, "is no schema; give an object or a boolean", pointer)
        if "$ref" in schema and self.document.dialect.ref_stands_alone:
            schema = {"$ref": schema["$ref"]}
        context = Context(
            document=self.document, values=values, reporter=self, pointer=pointer, scope=place.scope, schema=schema
        )
        parts = []
        for keyword, translate in KEYWORDS.items():
            if keyword in schema:
                shape = self._keyword(context, keyword, translate)
                if shape is not None:
                    parts.append(shape)
                    self._enforced.update(
                        ((pointer, name), None) for name in (keyword, *TOGETHER.get(keyword, ())) if name in schema
                    )
        for keyword in schema:
            if keyword not in KEYWORDS and keyword not in SILENT:
                self.report(pointer, keyword, "is not a keyword of JSON Schema, so it asserts nothing")
        return values.shapes.all_of(parts) if parts else ANYTHING

    def _keyword(self, context: Context, keyword: str, translate: Translate) -> Shape | None:
        try:
            return translate(context)
        except UnsupportedConstraintError as error:
            if not self._best_effort:
                raise
            self.report(context.pointer, keyword, error.bare_message)
            return None

    @property
    def enforced(self) -> tuple[EnforcedKeyword, ...]:
        """The keywords met so far that assert something and were not reported."""
        return tuple(
            EnforcedKeyword(pointer=f"{pointer}/{escaped(keyword)}", keyword=keyword)
            for pointer, keyword in self._enforced
            if (pointer, keyword) not in self.unenforced
        )

    def report(self, pointer: str, keyword: str, reason: str) -> None:
        """Note a keyword that is not enforced."""
        self.unenforced.setdefault(
            (pointer, keyword),
            UnenforcedKeyword(pointer=f"{pointer}/{escaped(keyword)}", keyword=keyword, reason=reason),
        )
