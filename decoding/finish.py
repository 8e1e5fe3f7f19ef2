"""Why a sequence ended.

Invariant: every sequence ends with exactly one of these.
"""

from __future__ import annotations

import enum


class FinishReason(enum.Enum):
    """Why generation of one sample ended."""

    EOS = "eos"
    """The model drew an end-of-sequence token."""
    STOP_STRING = "stop_string"
    """A stop string of the request was completed."""
    GRAMMAR_END = "grammar_end"
    """The constraint was complete and allowed nothing but the end."""
    LENGTH = "length"
    """max_tokens or the context length was reached."""
    NO_LEGAL_TOKEN = "no_legal_token"
    """Constraint, bad words, bias and min_tokens together left no token."""
    CANCELLED = "cancelled"
    """The caller cancelled, disconnected, or its deadline passed."""
    ERROR = "error"
    """This request failed alone; the message says why."""
