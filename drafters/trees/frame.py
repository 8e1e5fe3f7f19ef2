"""The frame that a tree grows along: what may follow each of its nodes.

Masked drafters ask for a whole level at once, of all sequences, so that there is one exchange per level between the
device and the grammar. Invariant: the masks are those of the automaton that verification uses, so that no guess
that was grown here is ever rejected by the grammar.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from decoding.errors import GrammarStateError
from decoding.masks import MaskRow
from grammars.protocol import Matcher


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A node of a growing tree.

    Attributes:
        seed: index of its sequence in the batch.
        path: token ids from below node 0 to the node itself; empty for node 0.
    """

    seed: int
    path: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """What may follow a node: the tokens of ``mask`` (None for every token), or nothing where the text has ended."""

    mask: MaskRow | None = None
    ended: bool = False


ANYTHING = Following()
NOTHING = Following(ended=True)


class Frame(Protocol):
    """What may follow the nodes of one level."""

    def follow(self, places: Sequence[Place]) -> list[Following]:
        """One answer per place, in order. Called once per level, with the nodes of every sequence."""
        ...


class MatcherFrame:
    """A `Frame` from each sequence's matcher, which is forked once and left as it is.

    A matcher whose bound of work is exhausted ends its own tree only. Where there is no matcher, a text ends at an
    end-of-sequence token.
    """

    def __init__(self, matchers: Sequence[Matcher | None], eos_token_ids: Collection[int]) -> None:
        """``eos_token_ids``: of texts without a matcher; empty where end-of-sequence does not end them."""
        self._eos_token_ids = frozenset(eos_token_ids)
        self._walkers = [None if matcher is None else _Walker(matcher.fork()) for matcher in matchers]

    def follow(self, places: Sequence[Place]) -> list[Following]:
        """See `Frame`."""
        return [self._one(place) for place in places]

    def _one(self, place: Place) -> Following:
        walker = self._walkers[place.seed]
        if walker is not None:
            return walker.follow(place.path)
        return NOTHING if place.path and place.path[-1] in self._eos_token_ids else ANYTHING


class _Walker:
    """A fork that goes from node to node: back to the nearest common ancestor, then down."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._path: tuple[int, ...] = ()
        self._failed = False

    def follow(self, path: tuple[int, ...]) -> Following:
        if self._failed:
            return NOTHING
        try:
            self._go(path)
            return NOTHING if self._matcher.is_finished else Following(mask=self._matcher.mask())
        except GrammarStateError:
            self._failed = True
            return NOTHING

    def _go(self, path: tuple[int, ...]) -> None:
        shared = 0
        while shared < min(len(path), len(self._path)) and path[shared] == self._path[shared]:
            shared += 1
        self._matcher.rollback(len(self._path) - shared)
        self._path = path[:shared]
        for token in path[shared:]:
            self._matcher.advance(token)
            self._path = (*self._path, token)
