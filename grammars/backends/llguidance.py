"""llguidance as a backend: its Earley parser over a lexer of derivatives, behind `Grammar` and `Matcher`.

Invariant: a token is legal exactly where llguidance says so, end-of-sequence ids exactly where the text may end, and
the work for one mask stays within `LIMITS` and `MAX_MASK_S`.

Known defects of llguidance 1.9.1, and what is done about them: after a mask, a rollback and another token, masks can be
wrong in both directions, so that masks are computed on a copy (a few microseconds) and never on what is rolled back;
after an illegal token there is no rollback, so that tokens are tried first.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from decoding.errors import ConstraintError, GrammarStateError, UnsupportedConstraintError
from decoding.masks import MaskRow, num_words
from grammars.backends.branching import branches_of
from grammars.matching.rows import freeze
from grammars.vocabulary import Vocabulary

LIMITS = LLParserLimits(
    max_items_in_row=2_000,
    initial_lexer_fuel=1_000_000,
    step_lexer_fuel=1_000_000,
    step_max_items=50_000,  # a mask of JSON by characters takes 8,000 at 49k tokens
    max_lexer_states=100_000,
    max_grammar_size=500_000,
    precompute_large_lexemes=True,
    verbose_errors=False,
)
MAX_MASK_S = 0.2
"""Processor time of one mask; a matcher that needed more fails. `LIMITS` end a mask at about twice as much."""
_PLACE = re.compile(r"^(at )?\d+\(\d+\): ")


class LlguidanceGrammar:
    """A grammar in llguidance's notation, compiled where it is used; only its text travels."""

    def __init__(self, *, key: str, text: str, vocabulary: Vocabulary, field: str) -> None:
        """Raises ConstraintError, which names ``field``, where llguidance does not compile the text."""
        self._key = key
        self._text = text
        self._vocabulary = vocabulary
        self._field = field
        self._start = LLMatcher(_tokenizer(vocabulary), text, log_level=0, limits=LIMITS)
        if self._start.is_error():
            message = _PLACE.sub("", self._start.get_error()).partition("\n")[0]  # of a text that no caller has seen
            raise ConstraintError(field, f"cannot be compiled by llguidance: {message}")

    def __reduce__(self) -> tuple[object, tuple[str, str, Vocabulary, str]]:
        return _rebuilt, (self._key, self._text, self._vocabulary, self._field)

    @property
    def key(self) -> str:
        """Hash of constraint, options, vocabulary and backend."""
        return self._key

    @property
    def num_states(self) -> int:
        """The state at the start; llguidance does not tell how many it has built."""
        return 1

    @property
    def num_bytes(self) -> int:
        """Size of the text; llguidance does not tell what it builds from it."""
        return len(self._text)

    @property
    def warnings(self) -> list[str]:
        """What llguidance does not enforce of it."""
        return list(self._start.get_grammar_warnings())

    def matcher(self) -> LlguidanceMatcher:
        """A matcher at the start of the text."""
        return LlguidanceMatcher(self._start.deep_copy(), self._vocabulary)

    def shortest_text(self) -> None:
        """Not told."""

    def finishing(self, limit: int) -> LlguidanceMatcher:  # noqa: ARG002 - whatever the limit
        """Llguidance does not tell how short a text can be: raises UnsupportedConstraintError."""
        raise UnsupportedConstraintError(
            "sampling.finish_within_limit",
            "cannot be promised for texts that llguidance checks; leave it unset, or"
            " use a schema, a regular expression or choices with the backend espalier",
        )


def _rebuilt(key: str, text: str, vocabulary: Vocabulary, field: str) -> LlguidanceGrammar:
    return LlguidanceGrammar(key=key, text=text, vocabulary=vocabulary, field=field)


class LlguidanceMatcher:
    """llguidance's matcher, an end that it never sees, and an error that stays."""

    __slots__ = ("_error", "_finished", "_matcher", "_num_advanced", "_row", "_vocabulary")

    def __init__(self, matcher: LLMatcher, vocabulary: Vocabulary) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._row: MaskRow | None = None
        self._num_advanced = 0
        self._finished = False
        self._error: str | None = None

    @property
    def is_accepting(self) -> bool:
        """The text so far is complete."""
        return self._error is None and not self._finished and bool(self._matcher.is_accepting())

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
            is_legal = is_known and self._matcher.validate_tokens([token]) == 1 and self._matcher.consume_token(token)
        if not is_legal:
            raise self._failed(self._matcher.get_error() or f"token {token} is illegal here")
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
        consumed = count - self._finished
        if consumed and not self._matcher.rollback(consumed):
            raise self._failed(self._matcher.get_error())
        self._num_advanced -= count
        self._finished = False
        self._row = None

    def fork(self) -> LlguidanceMatcher:
        """An independent matcher in the same state, without the history before it."""
        twin = LlguidanceMatcher(self._matcher.deep_copy(), self._vocabulary)
        twin._row = self._row
        twin._finished = self._finished
        twin._error = self._error
        return twin

    def forced(self, limit: int) -> bytes:
        """The bytes, at most ``limit``, that every completion starts with from here."""
        self._check()
        if self.is_accepting:
            return b""
        return bytes(self._matcher.compute_ff_bytes()[:limit])

    def branches(self, limit: int) -> tuple[bytes, ...]:
        """The few texts that the next choice leaves, see `grammars.protocol.Matcher`."""
        self._check()
        return branches_of(self, self._vocabulary, limit)

    def _computed(self) -> MaskRow:
        bits = np.zeros(num_words(self._vocabulary.size), dtype=np.uint32)
        copy = self._matcher.deep_copy()
        started = time.thread_time()
        copy.unsafe_compute_mask_ptr(bits.ctypes.data, bits.nbytes)
        if copy.is_error():
            raise self._failed(copy.get_error())
        if time.thread_time() - started > MAX_MASK_S:
            raise self._failed("the grammar takes too long to follow; make it less ambiguous")
        try:
            return freeze(bits, self._vocabulary.size)
        except GrammarStateError as error:
            raise self._failed(str(error)) from error

    def _failed(self, message: str) -> GrammarStateError:
        self._error = message.partition("\n")[0]  # what follows is about llguidance's inside
        return GrammarStateError(self._error)

    def _check(self) -> None:
        if self._error is not None:
            raise GrammarStateError(self._error)
        if self._finished:
            raise GrammarStateError("the text has ended")


class _Tokens:
    """A vocabulary as `TokenizerWrapper` asks for it; text is never tokenised, since nothing is forced."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        padding = [b""] * (vocabulary.size - vocabulary.num_tokens)
        self.tokens: Sequence[bytes] = [*vocabulary.tokens, *padding]
        self.special_token_ids: Sequence[int] = sorted(vocabulary.special_ids)
        self.eos_token_id = vocabulary.eos_ids[0]
        self.bos_token_id = None

    def __call__(self, text: bytes) -> list[int]:
        del text
        return []


@lru_cache(maxsize=2)
def _tokenizer(vocabulary: Vocabulary) -> LLTokenizer:
    """The trie of a vocabulary, which takes 0.1 s for 49k tokens: each process makes it once."""
    return LLTokenizer(TokenizerWrapper(_Tokens(vocabulary)), eos_token=list(vocabulary.eos_ids))
