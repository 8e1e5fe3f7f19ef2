"""Options of schemas that other libraries have none of.

Invariant: an option that changes which texts are legal is followed or refused, never ignored.
"""

from __future__ import annotations

from decoding.errors import UnsupportedConstraintError
from grammars.constraint import ConstraintKind, ConstraintSpec, Formats, PropertyOrder


def refuse_schema_options(spec: ConstraintSpec, backend: str) -> None:
    """Raise UnsupportedConstraintError where a schema comes with an option that only our own engine follows."""
    if spec.kind is not ConstraintKind.JSON_SCHEMA:
        return
    asked = {
        "property_order": (spec.property_order is PropertyOrder.ANY, "any", "schema"),
        "formats": (spec.formats is Formats.ANNOTATE, "annotate", "assert"),
        "integral_floats": (spec.integral_floats, "true", "false"),
    }
    for option, (is_asked, value, mend) in asked.items():
        if is_asked:
            raise UnsupportedConstraintError(
                f"constraint.{option}", f"{value} is not known to {backend}; use {mend}, or the backend espalier"
            )
