"""The keywords of JSON Schema, drafts 4 to 2020-12.

Invariant: a keyword is in `KEYWORDS` (it asserts something), in `SILENT` (it asserts nothing, by the standard), or
unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from grammars.json_schema.context import Translate
from grammars.json_schema.keywords import arrays, evaluated, logic, objects, scalars

KEYWORDS: Mapping[str, Translate] = MappingProxyType(
    {
        "type": scalars.types,
        "const": scalars.const,
        "enum": scalars.enum,
        "minimum": scalars.minimum,
        "maximum": scalars.maximum,
        "exclusiveMinimum": scalars.exclusive_minimum,
        "exclusiveMaximum": scalars.exclusive_maximum,
        "multipleOf": scalars.multiple_of,
        "minLength": scalars.min_length,
        "maxLength": scalars.max_length,
        "pattern": scalars.pattern,
        "format": scalars.string_format,
        "contentEncoding": scalars.content_encoding,
        "prefixItems": arrays.prefix_items,
        "items": arrays.items,
        "additionalItems": arrays.additional_items,
        "minItems": arrays.min_items,
        "maxItems": arrays.max_items,
        "contains": arrays.contains,
        "uniqueItems": arrays.unique_items,
        "unevaluatedItems": evaluated.unevaluated_items,
        "properties": objects.properties,
        "patternProperties": objects.pattern_properties,
        "additionalProperties": objects.additional_properties,
        "propertyNames": objects.property_names,
        "required": objects.required,
        "minProperties": objects.min_properties,
        "maxProperties": objects.max_properties,
        "unevaluatedProperties": evaluated.unevaluated_properties,
        "dependentRequired": logic.dependent_required,
        "dependentSchemas": logic.dependent_schemas,
        "dependencies": logic.dependencies,
        "$ref": logic.ref,
        "$dynamicRef": logic.dynamic_ref,
        "$recursiveRef": logic.recursive_ref,
        "allOf": logic.all_of,
        "anyOf": logic.any_of,
        "oneOf": logic.one_of,
        "not": logic.negation,
        "if": logic.conditional,
    }
)
"""In the order in which the declared keys of a schema are generated: its own, then those of the schemas it combines."""

SILENT = frozenset(
    [
        "$schema",
        "$id",
        "id",
        "$anchor",
        "$dynamicAnchor",
        "$recursiveAnchor",
        "$vocabulary",
        "$comment",
        "$defs",
        "definitions",
        "title",
        "description",
        "default",
        "examples",
        "example",
        "deprecated",
        "readOnly",
        "writeOnly",
        "contentMediaType",
        "contentSchema",
        "then",
        "else",
        "minContains",
        "maxContains",
    ]
)

TOGETHER: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"contains": ("minContains", "maxContains"), "if": ("then", "else")}
)
"""Keywords that mean something beside another one alone, and are translated with it."""
