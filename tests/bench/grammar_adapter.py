"""Espalier behind the protocol of a harness for grammar engines: compile, matcher, mask, accept."""

from __future__ import annotations

from typing import Any

import numpy as np

from decoding.errors import GrammarStateError
from decoding.masks import MaskRow
from grammars.constraint import ConstraintKind, ConstraintSpec, PropertyOrder, Whitespace
from grammars.json_schema.compile import JsonOptions, compile_json_schema
from grammars.matching.constraint import LazyGrammar
from grammars.matching.trie import TokenTrie
from grammars.vocabulary import Vocabulary
from grammars.warm_up import warm_up
from service import garbage


class Espalier:
    """The harness hands in a vocabulary with ``tokens``, ``special`` and ``eos``."""

    name = "espalier"
    property_order = PropertyOrder.SCHEMA
    assert_formats = True

    def __init__(self, vocab: Any) -> None:
        special = frozenset(vocab.special) | {vocab.eos}
        self._trie = TokenTrie.of(
            Vocabulary(
                tokens=tuple(b"" if token in special else text for token, text in enumerate(vocab.tokens)),
                special_ids=special,
                eos_ids=(vocab.eos,),
                size=vocab.size,
            )
        )
        warm_up(self._trie)
        garbage.settle()  # both as the engine's process does

    def compile(self, kind: str, text: str) -> LazyGrammar:
        if kind != "json":
            raise NotImplementedError(kind)
        garbage.collect_when_due(is_idle=True)
        options = JsonOptions(
            whitespace=Whitespace.FLEXIBLE,
            property_order=self.property_order,
            assert_formats=self.assert_formats,
            integral_floats=True,
        )
        return compile_json_schema(text, options).bind(self._trie)

    def matcher(self, grammar: LazyGrammar) -> _Walk:
        return _Walk(grammar)

    def key(self, text: str) -> str:
        """What the service keeps a compiled schema under."""
        spec = ConstraintSpec(kind=ConstraintKind.JSON_SCHEMA, text=text, whitespace=Whitespace.FLEXIBLE)
        return spec.key(fingerprint=self._trie.vocabulary.fingerprint, backend=self.name)


class EspalierAnyOrder(Espalier):
    """The same with keys in any order."""

    name = "espalier-any-order"
    property_order = PropertyOrder.ANY


class EspalierFormatNotes(Espalier):
    """The same with `format` as a note to the reader, which it is in the drafts unless it is asked for."""

    name = "espalier-format-notes"
    assert_formats = False


class _Walk:
    def __init__(self, grammar: LazyGrammar) -> None:
        self._matcher = grammar.matcher()
        self._row: MaskRow | None = None
        self.bits = np.zeros((grammar.trie.vocabulary.size + 31) // 32, dtype=np.int32)
        self._words = self.bits.data

    def mask(self) -> None:
        row = self._matcher.mask()
        if row is not self._row:
            self._row = row
            self._words[:] = row.bits_W.data

    def accept(self, token: int) -> bool:
        try:
            self._matcher.advance(token)
        except GrammarStateError:
            return False
        return True
