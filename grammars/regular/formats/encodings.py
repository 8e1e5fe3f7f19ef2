"""Binary data as text (RFC 4648).

Invariant: every word decodes, and encoding the result gives the word again.
"""

from __future__ import annotations

from grammars.regular.expressions import Expression
from grammars.regular.regex.compile import compile_regex


def base64() -> Expression:
    """Base 64 (section 4) with padding, no line breaks, and zeros for the bits that are left over (section 3.5)."""
    return compile_regex(
        "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?",
    )
