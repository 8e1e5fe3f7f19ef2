"""JSON pointers (RFC 6901), relative ones (draft-bhutton-relative-json-pointer-00) and UUIDs (RFC 9562).

Invariant: a tilde in a pointer is always followed by 0 or 1.
"""

from __future__ import annotations

from typing import Final

from grammars.regular.expressions import Expression
from grammars.regular.regex.compile import compile_regex

_POINTER: Final = "(?s:/(?:[^~/]|~[01])*)*"


def json_pointer() -> Expression:
    """A pointer in its string form."""
    return compile_regex(_POINTER)


def relative_json_pointer() -> Expression:
    """Levels up (at most 9 digits), then a pointer or a hash sign."""
    return compile_regex(f"(?:0|[1-9][0-9]{{0,8}})(?:#|{_POINTER})")


def uuid() -> Expression:
    """Five groups of hexadecimal digits."""
    return compile_regex("[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}")
