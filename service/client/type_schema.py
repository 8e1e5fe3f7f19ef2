"""JSON Schemas of pydantic types, closed: an object has the fields of its class and no others.

pydantic leaves ``additionalProperties`` out where extra keys are ignored, which JSON Schema reads as "any". A parser
can ignore keys that it did not ask for; a model that may invent them may never stop. Invariant: what a type says itself
(``extra="allow"``, a dict's values, ``json_schema_extra``) stands; what fits the closed schema fits the open one.
"""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema


def closed_schema(adapter: TypeAdapter[Any]) -> dict[str, Any]:
    """The JSON Schema of what the type validates. Raises PydanticUserError where it has none."""
    return adapter.json_schema(schema_generator=_ClosedObjects)


class _ClosedObjects(GenerateJsonSchema):
    """Closes what is generated from a class. Schemas that are written by hand (``WithJsonSchema``) stay as they are."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Of a BaseModel."""
        return _closed(super().model_schema(schema))

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        """Of a dataclass, pydantic's or the standard library's."""
        return _closed(super().dataclass_schema(schema))

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        """Of a TypedDict."""
        return _closed(super().typed_dict_schema(schema))


def _closed(schema: JsonSchemaValue) -> JsonSchemaValue:
    """A RootModel comes through here too; it is closed where it is an object of fields, not where it is a dict."""
    if "properties" in schema:
        schema.setdefault("additionalProperties", False)
    return schema
