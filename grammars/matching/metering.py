"""What lazily built states cost, and who pays.

States are built when a sample first needs them, in the middle of an engine step that many requests share, so a request
may spend only so much: per mask or advance, because everybody waits meanwhile, and in all, because one step follows
another. What it paid for stays in the tables for everybody with the same grammar. The measure is processor time, which
a busy machine does not stretch; the bounds decide whether a request fails, never what its text is. Invariant: building
starts only while the allowance lasts, so that it is exceeded by one state at most, which limits of its source bound.
"""

from __future__ import annotations

import math
import time
from typing import NamedTuple

from decoding.errors import ConstraintError, GrammarStateError
from grammars.matching.tables import Source, Tables


class Allowance(NamedTuple):
    """Processor seconds that one sample may spend on states that nobody had needed before."""

    per_call_s: float
    in_all_s: float


UNLIMITED = Allowance(math.inf, math.inf)
"""Where a worker's own limits bound it."""
IN_ENGINE = Allowance(0.2, 2.0)
"""Where other requests wait."""
GUESSING = Allowance(0.02, 0.5)
"""For looking ahead on behalf of drafters, beside what the text itself needs."""

_TOO_MUCH = "the constraint takes too long to follow; simplify its patterns and alternatives"


class MeteredSource:
    """A `Source` that measures what it costs and stops where a call's allowance ends.

    What a source cannot build after all becomes a GrammarStateError too, which fails one request.
    """

    def __init__(self, source: Source) -> None:
        self.spent_s = 0.0
        self._source = source
        self._until_s = math.inf
        self._is_one_call = False
        self._read_s: float | None = None

    def allow(self, seconds: float) -> float:
        """Let a call spend so much from here on; returns `spent_s`, for `since` at its end.

        All its processor time from the first state that is built to the last one counts: one reading of the clock per
        state is enough then.
        """
        self._until_s = self.spent_s + seconds
        self._is_one_call = True
        return self.spent_s

    def since(self, spent_s: float) -> float:
        """What the call that began at a reading of `spent_s` spent. It ends here."""
        self._is_one_call = False
        self._read_s = None
        return self.spent_s - spent_s

    def start(self, tables: Tables) -> tuple[int, int]:
        """See `Source`."""
        return self._source.start(tables)

    def expand(self, tables: Tables, state: int) -> None:
        """See `Source`. Raises GrammarStateError where the allowance is spent."""
        self._begin()
        try:
            self._source.expand(tables, state)
        except (ConstraintError, RecursionError) as error:
            raise GrammarStateError(_TOO_MUCH) from error
        finally:
            self._pay()

    def resolve(self, tables: Tables, handler: int, outcome: int) -> int:
        """See `Source`. Raises GrammarStateError where the allowance is spent."""
        self._begin()
        try:
            return self._source.resolve(tables, handler, outcome)
        except (ConstraintError, RecursionError) as error:
            raise GrammarStateError(_TOO_MUCH) from error
        finally:
            self._pay()

    def _begin(self) -> None:
        if self.spent_s >= self._until_s:
            raise GrammarStateError(_TOO_MUCH)
        if self._read_s is None:
            self._read_s = time.thread_time()

    def _pay(self) -> None:
        assert self._read_s is not None
        now_s = time.thread_time()
        self.spent_s += now_s - self._read_s
        self._read_s = now_s if self._is_one_call else None
