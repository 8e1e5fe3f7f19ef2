"""`Matcher.branches` by way of the rest of the protocol, for matchers whose inside cannot be asked.

Invariant: what is looked at is a fork; the matcher itself stays as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from decoding.errors import GrammarStateError
from grammars.protocol import MAX_BRANCHES, Matcher
from grammars.vocabulary import Vocabulary


def branches_of(matcher: Matcher, vocabulary: Vocabulary, limit: int) -> tuple[bytes, ...]:
    """The few texts that the next choice leaves; see `grammars.protocol.Matcher.branches`.

    Where the text parts, the mask tells its next bytes. That costs a mask and a fork for each of them; empty where the
    vocabulary does not spell the text in single bytes.
    """
    prefix = matcher.forced(limit)
    if len(prefix) == limit:
        return (prefix,) if prefix else ()
    try:
        parting = _after(matcher, prefix, vocabulary)
        first = _next_bytes(parting, vocabulary)
        if first is None:
            return ()
        if not first:
            return (prefix,) if prefix else ()
        left = limit - len(prefix) - 1
        texts = (bytes((byte,)) for byte in first)
        return tuple(prefix + text + _after(parting, text, vocabulary).forced(left) for text in texts)
    except (GrammarStateError, KeyError):  # too much work, or a byte without a token
        return ()


def _next_bytes(matcher: Matcher, vocabulary: Vocabulary) -> list[int] | None:
    """The bytes that legal tokens start with, ascending; None where they, or the tokens, are not few."""
    legal = matcher.mask().legal
    if legal is None:
        return None
    found = sorted({text[0] for token in legal.tolist() if (text := vocabulary.tokens[token])})
    return found if len(found) <= MAX_BRANCHES else None


def _after(matcher: Matcher, text: bytes, vocabulary: Vocabulary) -> Matcher:
    """A fork after ``text``. Raises KeyError where a byte has no token."""
    byte_tokens = _byte_tokens(vocabulary)
    fork = matcher.fork()
    for byte in text:
        fork.advance(byte_tokens[byte])
    return fork


@lru_cache(maxsize=2)
def _byte_tokens(vocabulary: Vocabulary) -> Mapping[int, int]:
    """The token of every byte that has one of its own."""
    return MappingProxyType({text[0]: token for token, text in enumerate(vocabulary.tokens) if len(text) == 1})
