"""How the drafts of JSON Schema differ where that matters here.

Invariant: a schema is read under exactly one draft, 2020-12 where it names none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from decoding.errors import UnsupportedConstraintError

_DRAFT = re.compile(r"^https?://json-schema\.org/(?:draft-(0[3-7])|draft/(2019-09|2020-12))/(?:hyper-)?schema#?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One draft.

    Attributes:
        name: as `$schema` spells it.
        id_keyword: what names a schema.
        ref_stands_alone: keywords beside `$ref` mean nothing (drafts 4, 6 and 7).
        boolean_exclusive: exclusiveMinimum and exclusiveMaximum are flags (draft 4).
        integral_floats: 1.0 is an integer (from draft 6 on).
        contains_looks: items that `contains` finds count as evaluated (2020-12).
    """

    name: str
    id_keyword: str = "$id"
    ref_stands_alone: bool = False
    boolean_exclusive: bool = False
    integral_floats: bool = True
    contains_looks: bool = False


DRAFT_4 = Dialect(name="04", id_keyword="id", ref_stands_alone=True, boolean_exclusive=True, integral_floats=False)
DRAFT_6 = Dialect(name="06", ref_stands_alone=True)
DRAFT_7 = Dialect(name="07", ref_stands_alone=True)
DRAFT_2019_09 = Dialect(name="2019-09")
DRAFT_2020_12 = Dialect(name="2020-12", contains_looks=True)

_BY_NAME = {dialect.name: dialect for dialect in (DRAFT_4, DRAFT_6, DRAFT_7, DRAFT_2019_09, DRAFT_2020_12)}


def dialect_of(schema: Any) -> Dialect:
    """The draft that ``$schema`` names; 2020-12 without one.

    Raises UnsupportedConstraintError for draft 3 and for other meta-schemas.
    """
    named = schema.get("$schema") if isinstance(schema, dict) else None
    if named is None:
        return DRAFT_2020_12
    match = _DRAFT.match(named) if isinstance(named, str) else None
    dialect = _BY_NAME.get(match[1] or match[2]) if match else None
    if named in ("http://json-schema.org/schema", "http://json-schema.org/schema#", "https://json-schema.org/schema"):
        return DRAFT_2020_12
    if dialect is None:
        raise UnsupportedConstraintError(
            "constraint.json_schema",
            f"$schema {named!r} is not supported; use drafts 4 to 7, 2019-09 or 2020-12",
            "/$schema",
        )
    return dialect
