r"""Bounded white space between JSON tokens: nothing, one space or tab, or a line break with its indentation.

    position     0 ── " " or "\t" ──> 1
                 0 ── "\r" ──> 2 ── "\n" ──> 3 ── " " or "\t" ──> 4 ── ... ──> 3 + INDENT
                 0 ── "\n" ──> 3

Invariant: every run of white space is at most INDENT + 2 bytes long.
"""

from __future__ import annotations

from types import MappingProxyType

INDENT = 48
"""Most characters of indentation after a line break."""
AFTER_SPACE = 1
AFTER_RETURN = 2
AFTER_BREAK = 3

_SPACE, _TAB, _BREAK, _RETURN = b" \t\n\r"

GAP = (
    MappingProxyType({_SPACE: AFTER_SPACE, _TAB: AFTER_SPACE, _BREAK: AFTER_BREAK, _RETURN: AFTER_RETURN}),
    MappingProxyType({}),
    MappingProxyType({_BREAK: AFTER_BREAK}),
    *(MappingProxyType({_SPACE: AFTER_BREAK + used, _TAB: AFTER_BREAK + used}) for used in range(1, INDENT + 1)),
    MappingProxyType({}),
)
"""Where each white-space byte leads, by position."""
