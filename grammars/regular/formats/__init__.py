"""The formats that JSON Schema names (2020-12 validation, section 7.3), as expressions.

Invariant: every word of a format is valid by the text that defines the format; what a regular language cannot say is
left out, never let through.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final

from grammars.regular.expressions import Expression
from grammars.regular.formats import addresses, dates, pointers, syntax, uris

_FORMATS: Final[dict[str, Callable[[], Expression]]] = {
    "date": dates.date,
    "date-time": dates.date_time,
    "duration": dates.duration,
    "email": addresses.email,
    "hostname": addresses.hostname,
    "idn-email": addresses.idn_email,
    "ipv4": addresses.ipv4,
    "ipv6": addresses.ipv6,
    "iri": uris.iri,
    "json-pointer": pointers.json_pointer,
    "regex": syntax.regex,
    "relative-json-pointer": pointers.relative_json_pointer,
    "time": dates.time,
    "uri": uris.uri,
    "uri-reference": uris.uri_reference,
    "uri-template": uris.uri_template,
    "uuid": pointers.uuid,
}

FORMATS: Final = frozenset(_FORMATS)
"""The names that `format_expression` knows."""


@cache
def format_expression(name: str) -> Expression | None:
    """The texts of a format; None where the name is not known."""
    build = _FORMATS.get(name)
    return None if build is None else build()
