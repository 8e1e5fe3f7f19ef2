"""Identifiers of resources (RFC 3986, appendix A; RFC 3987, section 2.2) and their templates (RFC 6570, section 2).

Invariant: a percent sign is always followed by two hexadecimal digits.
"""

from __future__ import annotations

from typing import Final

from grammars.regular.expressions import Expression
from grammars.regular.formats.addresses import IPV4, IPV6
from grammars.regular.regex.compile import compile_regex

_ENCODED: Final = "%[0-9A-Fa-f]{2}"
_DELIMITERS: Final = "!$&'()*+,;="
_UNRESERVED: Final = r"A-Za-z0-9._~\-"
_BEYOND_ASCII: Final = (
    "\xa0-\ud7ff\uf900-\ufdcf\ufdf0-\uffef"
    + "".join(f"{chr(plane << 16)}-{chr((plane << 16) + 0xFFFD)}" for plane in range(1, 14))
    + "\U000e1000-\U000efffd"
)
_PRIVATE: Final = "\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd"
_SCHEME: Final = "[A-Za-z][A-Za-z0-9+.-]*:"
_FUTURE_ADDRESS: Final = f"[Vv][0-9A-Fa-f]+\\.[{_UNRESERVED}{_DELIMITERS}:]+"


def uri() -> Expression:
    """An identifier with a scheme."""
    return compile_regex(_SCHEME + _hierarchy(_UNRESERVED) + _query_and_fragment(_UNRESERVED, ""))


def uri_reference() -> Expression:
    """An identifier with or without a scheme."""
    return compile_regex(_reference(_UNRESERVED, ""))


def iri() -> Expression:
    """An identifier with a scheme and characters beyond ASCII."""
    characters = _UNRESERVED + _BEYOND_ASCII
    return compile_regex(_SCHEME + _hierarchy(characters) + _query_and_fragment(characters, _PRIVATE))


def uri_template() -> Expression:
    """Literal text and expressions of all four levels; a prefix length has at most four digits."""
    name = f"(?:[A-Za-z0-9_]|{_ENCODED})(?:\\.?(?:[A-Za-z0-9_]|{_ENCODED}))*"
    variable = f"{name}(?::[1-9][0-9]{{0,3}}|\\*)?"
    text = rf"[!#$&(-;=?-\[\]_a-z~{_BEYOND_ASCII}{_PRIVATE}]|{_ENCODED}"
    return compile_regex(rf"(?:{text}|\{{[+#./;?&=,!@|]?{variable}(?:,{variable})*\}})*")


def _characters(unreserved: str, more: str) -> str:
    return f"(?:[{unreserved}{_DELIMITERS}{more}]|{_ENCODED})"


def _authority(unreserved: str) -> str:
    user = f"(?:{_characters(unreserved, ':')}*@)?"
    host = rf"(?:\[(?:{IPV6}|{_FUTURE_ADDRESS})\]|{IPV4}|{_characters(unreserved, '')}*)"
    return f"//{user}{host}(?::[0-9]*)?"


def _hierarchy(unreserved: str) -> str:
    """``hier-part``."""
    character = _characters(unreserved, ":@")
    rooted = f"(?:/{character}*)*"
    return f"(?:{_authority(unreserved)}{rooted}|/(?:{character}+{rooted})?|{character}+{rooted}|)"


def _query_and_fragment(unreserved: str, private: str) -> str:
    query, fragment = _characters(unreserved, f":@/?{private}"), _characters(unreserved, ":@/?")
    return rf"(?:\?{query}*)?(?:#{fragment}*)?"


def _reference(unreserved: str, private: str) -> str:
    character, first = _characters(unreserved, ":@"), _characters(unreserved, "@")
    rooted = f"(?:/{character}*)*"
    relative = f"(?:{_authority(unreserved)}{rooted}|/(?:{character}+{rooted})?|{first}+{rooted}|)"
    return f"(?:{_SCHEME}{_hierarchy(unreserved)}|{relative}){_query_and_fragment(unreserved, private)}"
