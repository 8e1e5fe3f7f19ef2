"""Prompt lookup: what followed the last tokens when they stood in prompt or output before.

(Saxena 2023, "Prompt Lookup Decoding", with an index instead of a search.) The index knows the places of each run of
three tokens; it grows with the text and is never built again. Invariant: the work of a guess does not depend on the
length of the text, and that of a step only on the tokens that are new.

    text      a  b  c  d  e  a  b  c          the last three stood at 2 before: d e a … may follow
    place     0  1  2  3  4  5  6  7
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from drafters.growing import GrowingTree
from drafters.source import grow_tips

KEY = 3
"""Tokens of a run in the index, the shortest match. Where two or one are enough, free text gets three and seven times
as many guesses, of which 1 in 15 is right, and each costs a row; copied text is served nearly as well (5.6 tokens a
step instead of 6.3)."""
LONGEST_MATCH = 8
"""A match is not read back further than this."""
PLACES = 16
"""Most recent places of one run that are kept."""
GUESSES_PER_MATCHED = 2
"""A match of m tokens is worth a run of this times m guesses: long matches go on for longer."""


class NgramIndex:
    """Places of the runs of one text."""

    def __init__(self) -> None:
        self._places: dict[tuple[int, ...], list[int]] = {}
        self._length = 0

    def extend(self, tokens: Sequence[int]) -> None:
        """Take in what was added to the text since the last call."""
        for end in range(max(KEY, self._length + 1), len(tokens) + 1):
            places = self._places.setdefault(tuple(tokens[end - KEY : end]), [])
            places.append(end)
            if len(places) > PLACES:
                del places[0]
        self._length = len(tokens)

    def places(self, run: Sequence[int]) -> list[int]:
        """Indices after the most recent places of a run of KEY tokens, oldest first."""
        return self._places.get(tuple(run), [])


class NgramSource:
    """Continuations of the longest matches, the most recent first among equals."""

    name = "ngram"

    def __init__(self) -> None:
        self._indices: dict[int, NgramIndex] = {}

    def grow(self, trees: Sequence[GrowingTree]) -> None:
        """See `drafters.source.Source`."""
        for tree in trees:
            self._indices.setdefault(tree.context.sequence_id, NgramIndex()).extend(tree.context.tokens)
        grow_tips(self, self.name, trees)

    def observe(self, sequence_id: int, tokens: Sequence[int]) -> None:
        """Nothing to learn: the index reads the text itself when it is asked."""

    def forget(self, sequence_id: int) -> None:
        """Drop the index."""
        self._indices.pop(sequence_id, None)

    def guess(self, tree: GrowingTree, node: int) -> list[Sequence[int]]:
        """Up to ``tree.width`` runs that begin differently."""
        text = tree.context.tokens
        tail = tree.tail(node, LONGEST_MATCH)
        index = self._indices[tree.context.sequence_id]
        places = [place for place in index.places(tail[-KEY:]) if place < len(text)]
        found = sorted(((_match(text, place, tail), place) for place in places), reverse=True)
        return list(_different(text, found, tree.width))


def _match(text: Sequence[int], place: int, tail: Sequence[int]) -> int:
    """How many tokens before ``place`` are those at the end of ``tail``."""
    most = min(place, len(tail))
    return next((size for size in range(most) if text[place - 1 - size] != tail[-1 - size]), most)


def _different(text: Sequence[int], found: Sequence[tuple[int, int]], count: int) -> Iterator[Sequence[int]]:
    """Runs after the places, the first of those with equal first tokens."""
    seen: set[int] = set()
    for matched, place in found:
        if text[place] not in seen and len(seen) < count:
            seen.add(text[place])
            yield text[place : place + GUESSES_PER_MATCHED * matched]
