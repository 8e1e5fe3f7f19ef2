"""A compiled constraint before and after it meets a vocabulary.

A `CompiledConstraint` is small and picklable and can be made where a runaway compilation can be killed; `bind` makes
the grammar where it is used. Invariant: of a grammar's caches and tables only the row at the start of the text travels
(it can take as many states as all later rows together, and is small); the rest is built again where it is needed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Protocol

from decoding.errors import GrammarStateError, UnsupportedConstraintError
from decoding.masks import MaskRow
from grammars.constraint import EnforcedKeyword, UnenforcedKeyword
from grammars.matching.automaton import PushdownAutomaton
from grammars.matching.finishing import Finishing, FinishingMatcher
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
        enforced: keywords of a schema that are enforced; of interest where it is compiled, and left behind there.
        unenforced: those that are not.
        has_parts: texts have several parts (tags, tools, reasoning); how short they can be is not told.
    """

    text_key: str
    language: Language
    enforced: tuple[EnforcedKeyword, ...] = ()
    unenforced: tuple[UnenforcedKeyword, ...] = ()
    has_parts: bool = False

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
        self._finishing: Finishing | None = None
        if first is not None:
            self._masks.adopt(first)
        self._positions = Positions(self._automaton, self._masks, repeats)

    def __reduce__(self) -> tuple[object, tuple[CompiledConstraint, TokenTrie, FirstRow | None]]:
        return _rebuilt, (replace(self.constraint, enforced=()), self.trie, self._masks.first)

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
        finishing = 0 if self._finishing is None else self._finishing.num_bytes
        return self._automaton.tables.num_bytes + self._masks.num_bytes + self._positions.num_bytes + finishing

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

    def finishing(self, limit: int) -> FinishingMatcher:
        """A matcher of texts that are whole within ``limit`` tokens; see `grammars.protocol.Grammar`."""
        if self.constraint.has_parts:
            raise UnsupportedConstraintError(
                "sampling.finish_within_limit",
                "cannot be promised for reasoning, tags and tools; leave it unset, or use a constraint of one part",
            )
        return FinishingMatcher(self.matcher(), self._shared_finishing(), limit)

    def shortest_text(self) -> bytes | None:
        """A text as short as can be, or nearly so where items or open keys must differ; None for texts of parts."""
        if self.constraint.has_parts:
            return None
        matcher = self.matcher()
        with matcher.paying():
            return self._shared_finishing().text(matcher.position)

    def _shared_finishing(self) -> Finishing:
        if self._finishing is None:
            self._finishing = Finishing(self._automaton, self._positions)
        return self._finishing


def _rebuilt(constraint: CompiledConstraint, trie: TokenTrie, first: FirstRow | None) -> LazyGrammar:
    return LazyGrammar(constraint=constraint, trie=trie, first=first)
