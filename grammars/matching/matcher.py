"""One sample's position in a grammar.

Invariant: a matcher that raised `GrammarStateError` raises it for ever after; it never touches another matcher.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from decoding.errors import GrammarStateError
from decoding.masks import MaskRow
from grammars.matching.ahead import branches_from, forced_from
from grammars.matching.automaton import PushdownAutomaton
from grammars.matching.metering import GUESSING, Allowance, MeteredSource
from grammars.matching.positions import Position, Positions
from grammars.vocabulary import SPECIAL_MARK

MAX_CANDIDATES = 4
"""More live bytes than this are a choice, whatever the memory forbids among them."""


class PushdownMatcher:
    """`grammars.protocol.Matcher` over a shared automaton: a position, and those before it for rollback."""

    __slots__ = (
        "_allowance",
        "_automaton",
        "_error",
        "_finished",
        "_history",
        "_left_guessing_s",
        "_left_s",
        "_meter",
        "_position",
        "_positions",
    )

    def __init__(
        self,
        automaton: PushdownAutomaton,
        positions: Positions,
        meter: MeteredSource,
        allowance: Allowance,
    ) -> None:
        self._automaton = automaton
        self._positions = positions
        self._meter = meter
        self._allowance = allowance
        self._left_s = allowance.in_all_s
        self._left_guessing_s = GUESSING.in_all_s
        self._position = positions.start
        self._finished = False
        self._history: list[Position] = []
        self._error: str | None = None

    @property
    def is_accepting(self) -> bool:
        """The text so far is complete."""
        if self._error is not None or self._finished:
            return False
        return self._automaton.is_accepting(self._position.configuration)

    @property
    def is_finished(self) -> bool:
        """An end-of-sequence token was advanced over."""
        return self._finished

    @property
    def position(self) -> Position:
        """Where the sample stands."""
        return self._position

    def mask(self) -> MaskRow:
        """The legal next tokens. Raises GrammarStateError after the end, after an error, and out of bounds."""
        if self._error is None and not self._finished:
            row = self._position.row
            if row is not None:
                return row
        self._check()
        spent_s = self._begin()
        try:
            return self._positions.row(self._position)
        except GrammarStateError as error:
            self._error = str(error)
            raise
        finally:
            self._left_s -= self._meter.since(spent_s)

    def only_end(self) -> bool:
        """True where nothing but an end-of-sequence token is legal."""
        self._check()
        configuration = self._position.configuration
        return self._automaton.is_accepting(configuration) and not self._automaton.live_bytes(configuration)

    def advance(self, token: int) -> None:
        """Commit to ``token``. Raises GrammarStateError where it is illegal."""
        if self._error is None and not self._finished:
            known = self._position.after.get(token)
            if known is not None:
                self._history.append(self._position)
                self._position = known
                return
        self._check()
        spent_s = self._begin()
        try:
            after = self._after(token)
        except GrammarStateError as error:
            self._error = str(error)
            raise
        finally:
            self._left_s -= self._meter.since(spent_s)
        self._history.append(self._position)
        if after is None:
            self._finished = True
        else:
            self._position = after

    def rollback(self, count: int) -> None:
        """Take back the last ``count`` advances."""
        if self._error is not None:
            raise GrammarStateError(self._error)
        if not 0 <= count <= len(self._history):
            raise ValueError(f"cannot take back {count} of {len(self._history)} advances")
        if count:
            self._position = self._history[-count]
            del self._history[-count:]
            self._finished = False

    def fork(self) -> PushdownMatcher:
        """An independent matcher in the same state, without the history before it."""
        twin = PushdownMatcher(self._automaton, self._positions, self._meter, self._allowance)
        twin._left_s = self._left_s
        twin._left_guessing_s = self._left_guessing_s
        twin._position = self._position
        twin._finished = self._finished
        twin._error = self._error
        return twin

    def forced(self, limit: int) -> bytes:
        """The bytes, at most ``limit``, that every completion starts with from here."""
        self._check()
        with self._guessing():
            return forced_from(self, self._position, limit, MAX_CANDIDATES)[0]

    def branches(self, limit: int) -> tuple[bytes, ...]:
        """The few texts that the next choice leaves, see `grammars.protocol.Matcher`."""
        self._check()
        with self._guessing():
            return branches_from(self, self._position, limit)

    def may_end(self, position: Position) -> bool:
        """See `Outlook`; also True where telling takes too much work."""
        try:
            return self._automaton.is_accepting(position.configuration)
        except GrammarStateError:
            return True

    def successors(self, position: Position, most: int) -> list[tuple[int, Position]] | None:
        """See `Outlook`; also None where telling takes too much work."""
        try:
            candidates = self._automaton.live_bytes(position.configuration)
            if len(candidates) > most or SPECIAL_MARK[0] in candidates:  # a special token adds no text
                return None
            read = [(byte, self._positions.read(position, bytes((byte,)))) for byte in candidates]
        except GrammarStateError:
            return None
        return [(byte, after) for byte, after in read if after is not None]

    def _after(self, token: int) -> Position | None:
        """The next position; None for a legal end."""
        if token not in self._automaton.trie.vocabulary.eos_ids:
            return self._positions.follow(self._position, token)
        if self._automaton.is_accepting(self._position.configuration):
            return None
        raise GrammarStateError(f"end-of-sequence token {token} came before the text was complete")

    def _begin(self) -> float:
        """What is built from here on is the sample's own; returns what the meter reads."""
        return self._meter.allow(min(self._allowance.per_call_s, self._left_s))

    @contextmanager
    def paying(self) -> Iterator[None]:
        """What is built within comes out of the sample's allowance, as in `mask`; an error in it stays."""
        spent_s = self._begin()
        try:
            yield
        except GrammarStateError as error:
            self._error = str(error)
            raise
        finally:
            self._left_s -= self._meter.since(spent_s)

    @contextmanager
    def _guessing(self) -> Iterator[None]:
        """What drafts cost must not fail a request that would come through without them: it is counted apart."""
        spent_s = self._meter.allow(min(GUESSING.per_call_s, self._left_guessing_s))
        try:
            yield
        finally:
            self._left_guessing_s -= self._meter.since(spent_s)

    def _check(self) -> None:
        if self._error is not None:
            raise GrammarStateError(self._error)
        if self._finished:
            raise GrammarStateError("the text has ended")
