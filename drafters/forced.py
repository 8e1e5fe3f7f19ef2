"""The text that the grammar leaves no choice about, as the tokenizer spells it.

Hardly ever is just one token legal: the *text* is forced, its tokenisation is not, and the target decides. So the guess
is the tokenizer's own spelling. Its last token is left to the target where the tokenizer would join it with what may
follow.

    forced text      {"size":        then a digit or a sign may follow
    spelled          {" size ":      and {" size ": 7, so that the last token stays

Invariant: every guess is a legal token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from decoding.errors import GrammarStateError
from decoding.masks import MaskRow
from drafters.growing import GrowingTree
from drafters.speculation import FORCED
from drafters.spelling import Speller
from grammars.protocol import Matcher

CONTEXT_TOKENS = 6
"""Tokens before the text that are spelled again with it."""
BYTES_PER_TOKEN = 8
"""How much text is asked for, per node that the tree has left; long tokens of text are rare in what is forced."""
SMALL_CHOICE = 4
"""Of other signs that may follow, so many are tried; where more may, none is likely."""

_LETTERS = b"aeioutnsrlcdmphgbfyvwkjxqzAEIOUTNSRLCDMPHGBFYVWKJXQZ"
_DIGITS = b"0123456789"
_CLASSES = (_LETTERS, _DIGITS, b" ")
_SIGNS = bytes(byte for byte in range(0x09, 0x7F) if byte not in _LETTERS + _DIGITS + b" ")


class ForcedSource:
    """Forced text as a run of guesses."""

    name = FORCED

    def __init__(self, speller: Speller, tokens: Sequence[bytes]) -> None:
        """``tokens[i]`` are the bytes of token i."""
        self._speller = speller
        self._bytes = tokens
        self._of_byte = {token[0]: index for index, token in enumerate(tokens) if len(token) == 1}

    def grow(self, trees: Sequence[GrowingTree]) -> None:
        """See `drafters.source.Source`."""
        for tree in trees:
            if tree.context.matcher is None:
                continue
            try:
                for node in tree.tips(self.name):
                    if tree.room:
                        self._extend(tree, node)
            except GrammarStateError:
                tree.close()

    def observe(self, sequence_id: int, tokens: Sequence[int]) -> None:
        """Nothing to learn."""

    def forget(self, sequence_id: int) -> None:
        """Nothing to drop."""

    def _extend(self, tree: GrowingTree, node: int) -> None:
        matcher = tree.matcher(node)
        if matcher is None or matcher.is_finished:
            return
        limit = BYTES_PER_TOKEN * tree.room
        text = matcher.forced(limit)
        if not text:
            return
        before = self._speller.bytes_before(tree.tail(node, CONTEXT_TOKENS))
        run = self._speller.spell(before, text)
        if len(run) > tree.room:
            tree.extend(node, run, self.name)
            return
        end = tree.extend(node, run[:-1], self.name)
        if len(text) < limit and len(tree.path(end)) == len(tree.path(node)) + len(run) - 1:
            self._add_last(tree, end, before, text, run)

    def _add_last(self, tree: GrowingTree, node: int, before: bytes, text: bytes, run: Sequence[int]) -> None:
        """Add the last token of a run, unless the tokenizer would join it with what may follow."""
        matcher = tree.matcher(node)
        if matcher is None or not run or run[-1] not in matcher.mask():
            return
        after = matcher.fork()
        after.advance(run[-1])
        if not any(self._joins(before, text, run, sign) for sign in self._following(after)):
            tree.extend(node, run[-1:], self.name)

    def _joins(self, before: bytes, text: bytes, run: Sequence[int], sign: bytes) -> bool:
        """Whether the tokenizer would spell ``text`` otherwise before ``sign``; within a word it always might."""
        if sign.isalpha() and text[-1:].isalpha():
            return True
        return self._speller.spell(before, text + sign)[: len(run)] != tuple(run)

    def _following(self, matcher: Matcher) -> Iterator[bytes]:
        """Likely next signs: a letter, a digit and a space where they are legal, else the few others that are."""
        row = matcher.mask()
        classes = [sign for signs in _CLASSES for sign in self._legal(signs, row, 1)]
        yield from classes or self._legal(_SIGNS, row, SMALL_CHOICE)

    def _legal(self, signs: bytes, row: MaskRow, count: int) -> list[bytes]:
        """The first ``count`` of ``signs`` that may come next."""
        found: list[bytes] = []
        for sign in signs:
            token = self._of_byte.get(sign)
            if token is not None and token in row:
                found.append(bytes((sign,)))
                if len(found) == count:
                    break
        return found
