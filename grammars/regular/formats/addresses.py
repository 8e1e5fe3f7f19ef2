"""Host names, internet addresses and mailboxes (RFC 1123, 2673, 4291, 5321, 6531).

Invariant: a host name's label is neither an encoded label (``xn--``) nor reserved (any ``--`` in the third and fourth
place): whether an encoded label is valid is no regular property.
"""

from __future__ import annotations

from typing import Final

from grammars.regular.expressions import Expression, concat, intersection, length, literal, union
from grammars.regular.regex.compile import compile_regex

_OCTET: Final = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
IPV4: Final = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_GROUP: Final = "[0-9A-Fa-f]{1,4}"
_LAST: Final = f"(?:{_GROUP}:{_GROUP}|{IPV4})"
IPV6: Final = (
    f"(?:(?:{_GROUP}:){{6}}{_LAST}"
    f"|::(?:{_GROUP}:){{5}}{_LAST}"
    f"|(?:{_GROUP})?::(?:{_GROUP}:){{4}}{_LAST}"
    f"|(?:(?:{_GROUP}:){{0,1}}{_GROUP})?::(?:{_GROUP}:){{3}}{_LAST}"
    f"|(?:(?:{_GROUP}:){{0,2}}{_GROUP})?::(?:{_GROUP}:){{2}}{_LAST}"
    f"|(?:(?:{_GROUP}:){{0,3}}{_GROUP})?::{_GROUP}:{_LAST}"
    f"|(?:(?:{_GROUP}:){{0,4}}{_GROUP})?::{_LAST}"
    f"|(?:(?:{_GROUP}:){{0,5}}{_GROUP})?::{_GROUP}"
    f"|(?:(?:{_GROUP}:){{0,6}}{_GROUP})?::)"
)
"""The nine forms of RFC 3986, appendix A."""
_LABEL: Final = "(?!..--)[0-9A-Za-z](?:[0-9A-Za-z-]{0,61}[0-9A-Za-z])?"
_IDN_LETTER: Final = (
    "0-9A-Za-z\xdf-\xf6\xf8-\xff\u03b1-\u03c9\u0430-\u044f\u0905-\u0914\u0e01-\u0e2e"
    "\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fa5\uac00-\ud7a3"
)
"""Letters of scripts written from left to right that no mapping changes: small Latin, Greek and Cyrillic ones,
Devanagari, Thai, kana, Han and Hangul. Other labels may be valid, too, by rules that are no regular property (RFC 5892,
5893).
"""
_IDN_LABEL: Final = f"(?!..--)[{_IDN_LETTER}](?:[{_IDN_LETTER}-]{{0,13}}[{_IDN_LETTER}])?"
_ATOM: Final = "[0-9A-Za-z!#$%&'*+/=?^_`{|}~-]"
_IDN_ATOM: Final = f"[{_IDN_LETTER}!#$%&'*+/=?^_`{{|}}~-]"
_QUOTED: Final = r'"(?:[ !#-\[\]-~]|\\[!-~])*"'


def hostname() -> Expression:
    """At most 253 characters in labels of at most 63 letters, digits and inner hyphens."""
    return intersection(compile_regex(rf"{_LABEL}(?:\.{_LABEL})*"), length(1, 253))


def ipv4() -> Expression:
    """Four decimal octets without leading zeros."""
    return compile_regex(IPV4)


def ipv6() -> Expression:
    """An address without a zone, the last 32 bits perhaps in decimal."""
    return compile_regex(IPV6)


def email() -> Expression:
    """A mailbox: at most 64 characters, an at sign, and a host name or an address in brackets."""
    return _mailbox(rf"{_ATOM}+(?:\.{_ATOM}+)*|{_QUOTED}", hostname())


def idn_email() -> Expression:
    """A mailbox with letters of other scripts (see `_IDN_LETTER`); host labels decoded, at most 15 letters long so that
    their encoded form stays within 63 characters.
    """
    host = intersection(compile_regex(rf"{_IDN_LABEL}(?:\.{_IDN_LABEL}){{0,3}}"), length(1, 63))
    return _mailbox(rf"{_IDN_ATOM}+(?:\.{_IDN_ATOM}+)*|{_QUOTED}", host)


def _mailbox(local: str, host: Expression) -> Expression:
    literal_address = compile_regex(rf"\[(?:{IPV4}|IPv6:{IPV6})\]")
    return concat(intersection(compile_regex(local), length(1, 64)), literal("@"), union(host, literal_address))
