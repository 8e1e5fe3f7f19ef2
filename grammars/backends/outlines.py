r"""outlines-core as a backend: its Index of states and tokens behind `Grammar` and `Matcher`.

Invariant: only tokens in the Index and, where it says that the text may end, end-of-sequence ids are legal.

Known defects of outlines-core 0.2.14, not repaired here: in an accepting state, tokens that lead to a non-accepting one
are dropped (``a(\.a+)?`` cannot go on after "a"); automata of bounded repeats explode; recursion is unrolled
three levels deep; a schema's pattern is copied as it stands, so that it may end the string that it is in; keywords
that `outlines_schema.unenforced_keywords` reports are ignored.
"""

from __future__ import annotations

import itertools
from typing import TypeAlias

from outlines_core import Index
from outlines_core import Vocabulary as OutlinesVocabulary
from outlines_core.json_schema import build_regex_from_schema

from decoding.errors import ConstraintError, GrammarStateError, UnsupportedConstraintError
from decoding.masks import MaskRow
from grammars.backends.branching import branches_of
from grammars.backends.outlines_schema import unenforced_keywords
from grammars.backends.schema_options import refuse_schema_options
from grammars.constraint import ConstraintKind, ConstraintSpec, RegexDialect, UnenforcedKeyword, Whitespace
from grammars.vocabulary import Vocabulary

State: TypeAlias = int
_BETWEEN_TOKENS = {Whitespace.COMPACT: "", Whitespace.FLEXIBLE: "[ ]?"}
_UNROLLED = 3
"""How many levels of a recursive schema become part of the regular expression."""


def compile_outlines(
    spec: ConstraintSpec, vocabulary: Vocabulary, *, key: str
) -> tuple[OutlinesGrammar, tuple[UnenforcedKeyword, ...]]:
    """Compile ``spec`` with outlines-core; unbounded in time and memory, so run it where it can be killed.

    Raises ConstraintError for what outlines-core cannot compile, UnsupportedConstraintError for keywords that it would
    ignore, unless the constraint says best_effort.
    """
    is_json = spec.kind in (ConstraintKind.JSON_SCHEMA, ConstraintKind.JSON_OBJECT)
    if is_json and spec.whitespace not in _BETWEEN_TOKENS:
        raise UnsupportedConstraintError(
            "constraint.whitespace", f"{spec.whitespace.value} is not known to outlines-core; use compact or flexible"
        )
    refuse_schema_options(spec, "outlines-core")
    if spec.kind is ConstraintKind.REGEX and spec.dialect is not RegexDialect.PYTHON:
        raise UnsupportedConstraintError(
            "constraint.regex_dialect", f"{spec.dialect.value} is not known to outlines-core; use python"
        )
    unenforced = unenforced_keywords(spec.text) if spec.kind is ConstraintKind.JSON_SCHEMA else ()
    if unenforced and not spec.best_effort:
        first = unenforced[0]
        raise UnsupportedConstraintError(
            spec.field, f"{first.keyword} is not enforced: {first.reason}; drop it or set best_effort", first.pointer
        )
    ids: dict[str | bytes, list[int]] = {}
    for token, text in enumerate(vocabulary.tokens):
        if text:
            ids.setdefault(text, []).append(token)
    try:
        index = Index(_pattern(spec), OutlinesVocabulary(vocabulary.eos_ids[0], ids))
    except (ValueError, TypeError) as error:
        raise ConstraintError(spec.field, f"cannot be compiled by outlines-core: {str(error).strip()}") from error
    return OutlinesGrammar(key=key, index=index, vocabulary=vocabulary), unenforced


def _pattern(spec: ConstraintSpec) -> str:
    match spec.kind:
        case ConstraintKind.REGEX:
            return spec.text
        case ConstraintKind.CHOICES:
            return "|".join("".join(f"\\x{{{ord(char):X}}}" for char in value) for value in spec.values)
        case ConstraintKind.JSON_OBJECT:
            schema = '{"type": "object"}'
        case ConstraintKind.JSON_SCHEMA:
            schema = spec.text
    return str(build_regex_from_schema(schema, _BETWEEN_TOKENS[spec.whitespace], _UNROLLED))


class OutlinesGrammar:
    """An Index, and the mask rows of its states that were asked for."""

    def __init__(self, *, key: str, index: Index, vocabulary: Vocabulary) -> None:
        self._key = key
        self._index = index
        self.vocabulary = vocabulary
        self._rows: dict[State, MaskRow] = {}
        _, (binary,) = index.__reduce__()
        self._index_bytes = len(binary)

    @property
    def key(self) -> str:
        """Hash of constraint, options, vocabulary and backend."""
        return self._key

    @property
    def num_states(self) -> int:
        """States whose row was asked for."""
        return len(self._rows)

    @property
    def num_bytes(self) -> int:
        """Size of the index in its binary form, and of the rows."""
        return self._index_bytes + sum(row.bits_W.nbytes for row in self._rows.values())

    def matcher(self) -> OutlinesMatcher:
        """A matcher at the start of the text."""
        return OutlinesMatcher(self, self._index.get_initial_state())

    def shortest_text(self) -> None:
        """Not told."""

    def finishing(self, limit: int) -> OutlinesMatcher:  # noqa: ARG002 - whatever the limit
        """outlines-core does not tell how short a text can be: raises UnsupportedConstraintError."""
        raise UnsupportedConstraintError(
            "sampling.finish_within_limit",
            "cannot be promised for texts that outlines-core checks; leave it unset, or"
            " use a schema, a regular expression or choices with the backend espalier",
        )

    def accepts(self, state: State) -> bool:
        """Whether the text may end in ``state``."""
        return bool(self._index.is_final_state(state))

    def allowed(self, state: State) -> list[int]:
        """The legal tokens that add text."""
        eos_ids = self.vocabulary.eos_ids
        return [token for token in self._index.get_allowed_tokens(state) or () if token not in eos_ids]

    def next_state(self, state: State, token: int) -> State | None:
        """The state after a token that adds text; None where it is illegal."""
        return None if token in self.vocabulary.eos_ids else self._index.get_next_state(state, token)

    def row(self, state: State) -> MaskRow:
        """The legal tokens, computed once per state."""
        row = self._rows.get(state)
        if row is None:
            legal = [*self.allowed(state), *(self.vocabulary.eos_ids if self.accepts(state) else ())]
            if not legal:
                raise GrammarStateError("outlines-core leaves no legal token here")
            row = self._rows[state] = MaskRow.from_ids(legal, self.vocabulary.size)
        return row

    def ends(self, token: int) -> bool:
        """Whether ``token`` ends a text."""
        return token in self.vocabulary.eos_ids

    def forced_step(self, state: State) -> tuple[bytes, State | None]:
        """The bytes that every legal token starts with, and the state after them where one token spells just them."""
        if self.accepts(state) or not (allowed := self.allowed(state)):
            return b"", None
        texts = self.vocabulary.tokens
        prefix = _common_prefix([texts[token] for token in allowed])
        # Equal bytes lead to equal states, so going on from that token loses no completion.
        after = next((self.next_state(state, token) for token in allowed if texts[token] == prefix), None)
        return prefix, after


def _common_prefix(texts: list[bytes]) -> bytes:
    first, last = min(texts), max(texts)
    shared = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False)))
    return first[:shared]


class OutlinesMatcher:
    """A state of the index, and those before it for rollback. Errors are sticky."""

    __slots__ = ("_error", "_finished", "_grammar", "_history", "_state")

    def __init__(self, grammar: OutlinesGrammar, state: State) -> None:
        self._grammar = grammar
        self._state = state
        self._history: list[State] = []
        self._finished = False
        self._error: str | None = None

    @property
    def is_accepting(self) -> bool:
        """The text so far is complete."""
        return self._error is None and not self._finished and self._grammar.accepts(self._state)

    @property
    def is_finished(self) -> bool:
        """An end-of-sequence token was advanced over."""
        return self._finished

    def mask(self) -> MaskRow:
        """The legal next tokens."""
        self._check()
        return self._grammar.row(self._state)

    def only_end(self) -> bool:
        """True where nothing but an end-of-sequence token is legal."""
        self._check()
        return self.is_accepting and not self._grammar.allowed(self._state)

    def advance(self, token: int) -> None:
        """Commit to ``token``. Raises GrammarStateError where it is illegal."""
        self._check()
        ends = self._grammar.ends(token)
        after = self._state if ends and self.is_accepting else self._grammar.next_state(self._state, token)
        if after is None:
            self._error = f"token {token} is illegal here"
            raise GrammarStateError(self._error)
        self._history.append(self._state)
        self._state = after
        self._finished = ends

    def rollback(self, count: int) -> None:
        """Take back the last ``count`` advances."""
        if self._error is not None:
            raise GrammarStateError(self._error)
        assert 0 <= count <= len(self._history)
        if count:
            self._state = self._history[-count]
            del self._history[-count:]
            self._finished = False

    def fork(self) -> OutlinesMatcher:
        """An independent matcher in the same state, without the history before it."""
        twin = OutlinesMatcher(self._grammar, self._state)
        twin._finished = self._finished
        twin._error = self._error
        return twin

    def forced(self, limit: int) -> bytes:
        """The bytes, at most ``limit``, that every completion starts with from here."""
        self._check()
        forced = b""
        state: State | None = self._state
        while state is not None and len(forced) < limit:
            more, state = self._grammar.forced_step(state)
            forced += more
        return forced[:limit]

    def branches(self, limit: int) -> tuple[bytes, ...]:
        """The few texts that the next choice leaves, see `grammars.protocol.Matcher`."""
        self._check()
        return branches_of(self, self._grammar.vocabulary, limit)

    def _check(self) -> None:
        if self._error is not None:
            raise GrammarStateError(self._error)
        if self._finished:
            raise GrammarStateError("the text has ended")
