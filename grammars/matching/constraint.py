"""A compiled constraint before and after it meets a vocabulary.

A `CompiledConstraint` is small and picklable and can be made where a runaway compilation can be killed; `bind` makes
the grammar where it is used. Invariant: of a grammar's caches and tables only the row at the start of the text travels
(it can take as many states as all later rows together, and is small); the rest is built again where it is needed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Protocol

from decoding.errors import GrammarStateError
from decoding.masks import MaskRow
from grammars.constraint import UnenforcedKeyword
from grammars.matching.automaton import PushdownAutomaton
from grammars.matching.masks import FirstRow, Masks
from grammars.matching.matcher import PushdownMatcher
from grammars.matching.metering import IN_ENGINE, UNLIMITED, MeteredSource
from grammars.matching.positions import Positions
from grammars.matching.repeats import Repeats
from grammars.matching.tables import Source
from grammars.matching.trie import TokenTrie


class Language(Protocol):
    """What a text may be; picklable, without caches."""

    def source(self) -> Source:
        """A fresh source of states."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledConstraint:
    """A constraint that compiled.

    Attributes:
        text_key: hash of the normalised constraint and its options; no vocabulary in it.
        language: what a text may be.
        unenforced: keywords of a schema that are not enforced.
    """

    text_key: str
    language: Language
    unenforced: tuple[UnenforcedKeyword, ...] = ()

    def bind(self, trie: TokenTrie) -> LazyGrammar:
        """The grammar over a vocabulary."""
        return LazyGrammar(constraint=self, trie=trie)


class LazyGrammar:
    """`grammars.protocol.Grammar`: one automaton, grown on demand, shared by all matchers."""

    def __init__(self, *, constraint: CompiledConstraint, trie: TokenTrie, first: FirstRow | None = None) -> None:
        self.constraint = constraint
        self.trie = trie
        fingerprint = trie.vocabulary.fingerprint
        self._key = hashlib.sha256(f"{constraint.text_key}\n{fingerprint}".encode()).hexdigest()
        self._meter = MeteredSource(constraint.language.source())
        # Where a grammar is compiled, limits of the worker bound it; where it arrives, others wait for its states.
        self._allowance = UNLIMITED if first is None else IN_ENGINE
        self._automaton = PushdownAutomaton(self._meter, trie)
        repeats = Repeats(self._automaton)
        self._masks = Masks(self._automaton, repeats)
        if first is not None:
            self._masks.adopt(first)
        self._positions = Positions(self._automaton, self._masks, repeats)

    def __reduce__(self) -> tuple[object, tuple[CompiledConstraint, TokenTrie, FirstRow | None]]:
        return _rebuilt, (self.constraint, self.trie, self._masks.first)

    @property
    def key(self) -> str:
        """Hash of constraint, options and vocabulary."""
        return self._key

    @property
    def num_states(self) -> int:
        """States built so far."""
        return self._automaton.tables.num_states

    @property
    def num_bytes(self) -> int:
        """Memory of tables and rows built so far."""
        return self._automaton.tables.num_bytes + self._masks.num_bytes + self._positions.num_bytes

    def renewed(self) -> LazyGrammar:
        """An equal grammar without what this one built, but for the row at the start of the text."""
        return LazyGrammar(constraint=self.constraint, trie=self.trie, first=self._masks.first)

    def row_after(self, text: bytes) -> MaskRow:
        """The tokens that are legal after ``text``, a legal beginning however it is cut into tokens."""
        position = self._positions.read(self._positions.start, text)
        if position is None:
            raise GrammarStateError(f"no text begins with {text!r}")
        return self._positions.row(position)

    def matcher(self) -> PushdownMatcher:
        """A matcher at the start of the text."""
        return PushdownMatcher(self._automaton, self._positions, self._meter, self._allowance)


def _rebuilt(constraint: CompiledConstraint, trie: TokenTrie, first: FirstRow | None) -> LazyGrammar:
    return LazyGrammar(constraint=constraint, trie=trie, first=first)
