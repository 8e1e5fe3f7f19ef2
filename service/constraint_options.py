"""Options of a constraint on the wire: what each means, and beside which kinds.

Invariant: an option that means nothing beside a constraint is refused, so that nobody believes that it was followed.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import TypedDict, TypeVar

from google.protobuf.descriptor import EnumDescriptor

from decoding.errors import InvalidRequestError
from grammars.constraint import ConstraintKind, Formats, PropertyOrder, RegexDialect, Whitespace
from service.v1 import common_pb2 as pb

EnumT = TypeVar("EnumT", bound=enum.Enum)

_PARTS = frozenset((ConstraintKind.STRUCTURAL_TAGS, ConstraintKind.TOOL_CALLS))
_SCHEMA = _PARTS | {ConstraintKind.JSON_SCHEMA}
_JSON = _SCHEMA | {ConstraintKind.JSON_OBJECT}
_MEANT_BESIDE: Mapping[str, frozenset[ConstraintKind]] = MappingProxyType(
    {
        "whitespace": _JSON,
        "property_order": _SCHEMA,
        "formats": _SCHEMA,
        "integral_floats": _SCHEMA,
        "best_effort": _SCHEMA,
        "regex_dialect": frozenset((ConstraintKind.REGEX, ConstraintKind.STRUCTURAL_TAGS)),
    }
)


class SpecOptions(TypedDict):
    """Arguments of `ConstraintSpec`."""

    whitespace: Whitespace
    best_effort: bool
    property_order: PropertyOrder
    formats: Formats
    dialect: RegexDialect
    integral_floats: bool


def spec_options(message: pb.Constraint, kind: ConstraintKind) -> SpecOptions:
    """The options of a constraint of ``kind``. Raises InvalidRequestError for unknown values and meaningless ones."""
    whitespace = chosen("whitespace", message.whitespace, pb.WhitespacePolicy.DESCRIPTOR, Whitespace.COMPACT)
    order = chosen("property_order", message.property_order, pb.PropertyOrder.DESCRIPTOR, PropertyOrder.SCHEMA)
    formats = chosen("formats", message.formats, pb.FormatPolicy.DESCRIPTOR, Formats.ASSERT)
    dialect = chosen("regex_dialect", message.regex_dialect, pb.RegexDialect.DESCRIPTOR, RegexDialect.PYTHON)
    for option, kinds in _MEANT_BESIDE.items():
        if getattr(message, option) and kind not in kinds:
            raise InvalidRequestError(f"constraint.{option}", f"means nothing beside {kind.value}; leave it unset")
    return SpecOptions(
        whitespace=whitespace,
        best_effort=message.best_effort,
        property_order=order,
        formats=formats,
        dialect=dialect,
        integral_floats=message.integral_floats,
    )


def refuse_options_of_handle(message: pb.Constraint) -> None:
    """Raise InvalidRequestError where options stand beside a handle, which has its own."""
    if given := [field.name for field, _ in message.ListFields() if field.containing_oneof is None]:
        raise InvalidRequestError("constraint", f"a handle fixes {' and '.join(given)}; leave them unset")


def chosen(field: str, number: int, wire: EnumDescriptor, default: EnumT) -> EnumT:
    """What a value of the field ``constraint.<field>`` says; ``default`` where it is unspecified.

    Raises InvalidRequestError.
    """
    if not number:
        return default
    value = wire.values_by_number.get(number)
    if value is None:
        known = ", ".join(known.name for known in wire.values)
        raise InvalidRequestError(f"constraint.{field}", f"has the unknown value {number}; use {known}")
    prefix = wire.values_by_number[0].name.removesuffix("UNSPECIFIED")
    return type(default)[value.name.removeprefix(prefix)]
