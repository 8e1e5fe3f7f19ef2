"""Binary data as text (RFC 4648).

Invariant: every word decodes, and encoding the result gives the word again.
"""

from __future__ import annotations

from typing import Final

from grammars.regular.expressions import Expression
from grammars.regular.regex.compile import compile_regex

BASE64: Final = "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?"
"""Base 64 (section 4) with padding, no line breaks, and zeros for the bits that are left over (section 3.5), as a
regular expression that means the same in every dialect.
"""


def base64() -> Expression:
    """The texts of `BASE64`."""
    return compile_regex(BASE64)
