"""xgrammar as a backend: its Earley matcher with token masks made when a grammar is compiled.

It is no dependency of the server, since it brings torch and triton into every process that compiles; this module is
imported where it is asked for. Grammars are llguidance's trade whatever the backend; regular expressions and choices go
through our reading, so that a pattern means the same; schemas it reads itself.

Invariant: a token is legal exactly where xgrammar says so, end-of-sequence ids exactly where the text may end, and a
matcher whose mask took more than `MAX_MASK_S` fails, alone.

Known defects of xgrammar 0.2.9, not repaired here: keys that a schema does not declare may come twice; patterns must
match the whole string; masks inside bounded strings take tens of milliseconds.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

import numpy as np
import xgrammar

from decoding.errors import ConstraintError, GrammarStateError, UnsupportedConstraintError
from decoding.masks import MaskRow, num_words
from grammars.backends.branching import branches_of
from grammars.backends.schema_options import refuse_schema_options
from grammars.backends.xgrammar_schema import unenforced_keywords
from grammars.constraint import ConstraintKind, ConstraintSpec, UnenforcedKeyword, Whitespace
from grammars.context_free.elimination import plain
from grammars.context_free.printing import plain_regex
from grammars.matching.rows import freeze
from grammars.regular import expressions as e
from grammars.regular.automaton import build
from grammars.regular.regex.compile import compile_regex
from grammars.vocabulary import Vocabulary

MAX_MASK_S = 0.2
"""Processor time of one mask; a matcher that needed more fails."""
_WHITESPACE: Mapping[Whitespace, Mapping[str, object]] = MappingProxyType(
    {
        Whitespace.COMPACT: {"any_whitespace": False, "separators": (",", ":")},
        Whitespace.SPACED: {"any_whitespace": False, "separators": (", ", ": ")},
        Whitespace.FLEXIBLE: {"any_whitespace": True, "max_whitespace_cnt": 20},
    }
)
_PLACE = re.compile(r"^\[[\d:]+\] \S+: ")


def compile_xgrammar(
    spec: ConstraintSpec, vocabulary: Vocabulary, *, key: str
) -> tuple[XgrammarGrammar, tuple[UnenforcedKeyword, ...]]:
    """Compile ``spec``, which is no grammar; unbounded in time and memory, so run it where it can be killed.

    Raises ConstraintError for what xgrammar cannot compile, UnsupportedConstraintError for keywords that it would
    ignore, unless the constraint says best_effort.
    """
    refuse_schema_options(spec, "xgrammar")
    unenforced = unenforced_keywords(spec.text) if spec.kind is ConstraintKind.JSON_SCHEMA else ()
    if unenforced and not spec.best_effort:
        first = unenforced[0]
        raise UnsupportedConstraintError(
            spec.field, f"{first.keyword} is not enforced: {first.reason}; drop it or set best_effort", first.pointer
        )
    tokens = _tokens(vocabulary)
    compiler = xgrammar.GrammarCompiler(tokens, max_threads=1, cache_enabled=False)
    try:
        compiled = _compiled(compiler, spec)
    except RuntimeError as error:
        message = _PLACE.sub("", str(error).strip()).partition("\n")[0]
        raise ConstraintError(spec.field, f"cannot be compiled by xgrammar: {message}") from error
    return XgrammarGrammar(key=key, compiled=compiled, vocabulary=vocabulary), unenforced


def _compiled(compiler: xgrammar.GrammarCompiler, spec: ConstraintSpec) -> xgrammar.CompiledGrammar:
    match spec.kind:
        case ConstraintKind.REGEX | ConstraintKind.CHOICES:
            return compiler.compile_regex(_pattern(spec))
        case ConstraintKind.JSON_OBJECT:
            schema = '{"type": "object"}'
        case _:
            assert spec.kind is ConstraintKind.JSON_SCHEMA
            schema = spec.text
    return compiler.compile_json_schema(schema, strict_mode=False, **_WHITESPACE[spec.whitespace])


def _pattern(spec: ConstraintSpec) -> str:
    if spec.kind is ConstraintKind.CHOICES:
        expression = e.union(*map(e.literal, spec.values))
    else:
        expression = compile_regex(spec.text, dialect=spec.dialect.value, field=spec.field)
        if plain_regex(expression) is None:
            expression = plain(expression, shortest=False, field=spec.field)
        if build(expression, field=spec.field).is_empty:
            raise ConstraintError(spec.field, "matches no text at all; check its anchors and look-around")
    pattern = plain_regex(expression)
    if pattern is None:
        raise UnsupportedConstraintError(spec.field, "has look-around, which xgrammar has none of; write it without")
    return pattern


class XgrammarGrammar:
    """A compiled grammar; it travels in xgrammar's own serialised form."""

    def __init__(self, *, key: str, compiled: xgrammar.CompiledGrammar, vocabulary: Vocabulary) -> None:
        self._key = key
        self._compiled = compiled
        self._vocabulary = vocabulary

    def __reduce__(self) -> tuple[object, tuple[str, str, Vocabulary]]:
        return _rebuilt, (self._key, self._compiled.serialize_json(), self._vocabulary)

    @property
    def key(self) -> str:
        """Hash of constraint, options, vocabulary and backend."""
        return self._key

    @property
    def num_states(self) -> int:
        """The state at the start; xgrammar does not tell how many it has."""
        return 1

    @property
    def num_bytes(self) -> int:
        """Memory of the compiled grammar."""
        return int(self._compiled.memory_size_bytes)

    def matcher(self) -> XgrammarMatcher:
        """A matcher at the start of the text."""
        return XgrammarMatcher(xgrammar.GrammarMatcher(self._compiled), self._vocabulary)

    def shortest_text(self) -> None:
        """Not told."""

    def finishing(self, limit: int) -> XgrammarMatcher:  # noqa: ARG002 - whatever the limit
        """Xgrammar does not tell how short a text can be: raises UnsupportedConstraintError."""
        raise UnsupportedConstraintError(
            "sampling.finish_within_limit",
            "cannot be promised for texts that xgrammar checks; leave it unset, or"
            " use a schema, a regular expression or choices with the backend espalier",
        )


def _rebuilt(key: str, serialised: str, vocabulary: Vocabulary) -> XgrammarGrammar:
    compiled = xgrammar.CompiledGrammar.deserialize_json(serialised, _tokens(vocabulary))
    return XgrammarGrammar(key=key, compiled=compiled, vocabulary=vocabulary)


class XgrammarMatcher:
    """xgrammar's matcher, an end that it never sees, and an error that stays."""

    __slots__ = ("_error", "_finished", "_matcher", "_num_advanced", "_row", "_vocabulary")

    def __init__(self, matcher: xgrammar.GrammarMatcher, vocabulary: Vocabulary) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._row: MaskRow | None = None
        self._num_advanced = 0
        self._finished = False
        self._error: str | None = None

    @property
    def is_accepting(self) -> bool:
        """The text so far is complete."""
        return self._error is None and not self._finished and bool(self._matcher.is_completed())

    @property
    def is_finished(self) -> bool:
        """An end-of-sequence token was advanced over."""
        return self._finished

    def mask(self) -> MaskRow:
        """The legal next tokens, computed once per state of this matcher."""
        self._check()
        if self._row is None:
            self._row = self._computed()
        return self._row

    def only_end(self) -> bool:
        """True where nothing but an end-of-sequence token is legal."""
        self._check()
        return self.is_accepting and self.mask().num_legal == len(self._vocabulary.eos_ids)

    def advance(self, token: int) -> None:
        """Commit to ``token``. Raises GrammarStateError where it is illegal."""
        self._check()
        is_end = token in self._vocabulary.eos_ids
        if is_end:
            is_legal = self.is_accepting
        else:
            is_known = 0 <= token < self._vocabulary.num_tokens and self._vocabulary.tokens[token] != b""
            is_legal = is_known and self._matcher.accept_token(token)
        if not is_legal:
            raise self._failed(f"token {token} is illegal here")
        self._num_advanced += 1
        self._finished = is_end
        self._row = None

    def rollback(self, count: int) -> None:
        """Take back the last ``count`` advances."""
        if self._error is not None:
            raise GrammarStateError(self._error)
        assert 0 <= count <= self._num_advanced
        if not count:
            return
        if consumed := count - self._finished:
            self._matcher.rollback(consumed)
        self._num_advanced -= count
        self._finished = False
        self._row = None

    def fork(self) -> XgrammarMatcher:
        """An independent matcher in the same state, without the history before it."""
        twin = XgrammarMatcher(self._matcher.fork(), self._vocabulary)
        twin._row = self._row
        twin._finished = self._finished
        twin._error = self._error
        return twin

    def forced(self, limit: int) -> bytes:
        """The bytes, at most ``limit``, that every completion starts with from here; whole characters alone."""
        self._check()
        if self.is_accepting:
            return b""
        forced: str = self._matcher.find_jump_forward_string()
        return forced.encode()[:limit]

    def branches(self, limit: int) -> tuple[bytes, ...]:
        """The few texts that the next choice leaves, see `grammars.protocol.Matcher`."""
        self._check()
        return branches_of(self, self._vocabulary, limit)

    def _computed(self) -> MaskRow:
        bits = np.zeros((1, num_words(self._vocabulary.size)), dtype=np.int32)
        started = time.thread_time()
        is_partial = self._matcher.fill_next_token_bitmask(bits)
        assert is_partial, "special tokens are never legal"
        if tail := self._vocabulary.size % 32:
            bits[0, -1] &= (1 << tail) - 1  # it sets the bits past the last id too
        if time.thread_time() - started > MAX_MASK_S:
            raise self._failed("the constraint takes too long to follow; simplify it")
        try:
            return freeze(bits[0].view(np.uint32), self._vocabulary.size)
        except GrammarStateError as error:
            raise self._failed(str(error)) from error

    def _failed(self, message: str) -> GrammarStateError:
        self._error = message
        return GrammarStateError(message)

    def _check(self) -> None:
        if self._error is not None:
            raise GrammarStateError(self._error)
        if self._finished:
            raise GrammarStateError("the text has ended")


@lru_cache(maxsize=2)
def _tokens(vocabulary: Vocabulary) -> xgrammar.TokenizerInfo:
    """A vocabulary as xgrammar sorts it: each process does so once."""
    return xgrammar.TokenizerInfo(
        list(vocabulary.tokens),
        xgrammar.VocabType.RAW,
        vocab_size=vocabulary.size,
        stop_token_ids=list(vocabulary.eos_ids),
    )
