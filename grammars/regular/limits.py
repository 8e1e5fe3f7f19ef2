"""Bounds of size and work for regular languages.

Invariant: every bound turns into a `ConstraintError` while a language is built and into a `GrammarStateError` while it
is walked; nothing is cut in silence.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RegularLimits:
    """What one pattern or expression may cost."""

    max_pattern_chars: int = 65_536
    """Length of a pattern's text, in code points."""
    max_nesting: int = 50
    """Groups inside groups in a pattern."""
    max_depth: int = 160
    """Operators inside operators in an expression."""
    max_nodes: int = 200_000
    """Operators and leaves of an expression, counted as a tree."""
    max_repeat: int = 1_000_000_000
    """The largest count in a quantifier."""
    build_work: int = 150_000
    """Terms that may be made before the start state is known to be live."""
    row_work: int = 100_000
    """Terms that may be made for the row of one state."""
    max_states: int = 1_000_000
    """States of one automaton; each costs one kilobyte once it is visited."""


DEFAULT_LIMITS = RegularLimits()
