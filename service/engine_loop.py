"""The loop of the engine's process: obey what waits, compute one step, report what came of it.

Invariant: everything that a step brings goes out as one message, and a command that fails touches its own request only.
"""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from decoding.errors import EspalierError
from engine.config import ModelCard
from engine.request import GenerationRequest, TokenEvent
from engine.stats import EngineStats
from grammars.protocol import Grammar
from grammars.vocabulary import Vocabulary
from service.awaited_grammars import Arrivals, AwaitedGrammars
from service.engine_messages import Abort, DropGrammar, Ping, Report, Shutdown, Submit
from service.garbage import collect_when_due
from service.grammar_shelf import GrammarShelf
from service.stops import StopAutomaton, TokenStopChecker

log = logging.getLogger(__name__)

PAUSE_S = 0.01
"""How long a turn waits for a command where the last step could compute nothing."""


class Engine(Protocol):
    """What the loop needs of `engine.engine.Engine`."""

    @property
    def card(self) -> ModelCard:
        """What was loaded."""
        ...

    @property
    def has_work(self) -> bool:
        """A request runs or waits."""
        ...

    def submit(self, request: GenerationRequest) -> None:
        """Queue a request; raises InvalidRequestError or CapacityError."""
        ...

    def abort(self, request_id: str) -> list[TokenEvent]:
        """End a request now; unknown ids are ignored."""
        ...

    def step(self) -> list[TokenEvent]:
        """Compute one step."""
        ...

    def stats(self) -> EngineStats:
        """A snapshot."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedGrammar:
    """A grammar as it arrived: unpickled, or why it could not be."""

    key: str
    grammar: Grammar | EspalierError


Instruction = Submit | Abort | LoadedGrammar | DropGrammar | Ping | Shutdown


class EngineLoop:
    """Instructions in, reports out. ``send`` may block while the parent is busy."""

    def __init__(
        self,
        engine: Engine,
        vocabulary: Vocabulary,
        inbox: queue.SimpleQueue[Instruction],
        send: Callable[[Report], None],
        arrivals: Arrivals,
    ) -> None:
        """``arrivals`` are the grammars on their way here."""
        self._engine = engine
        self._vocabulary = vocabulary
        self._inbox = inbox
        self._send = send
        self._arrivals = arrivals
        self._awaited = AwaitedGrammars(arrivals)
        self._grammars = GrammarShelf()
        self._is_stuck = False
        self._steps = 0

    def run(self) -> None:
        """Turn until told to shut down."""
        while True:
            collect_when_due(is_idle=not self._engine.has_work)
            instructions = list(self._take())
            if any(isinstance(instruction, Shutdown) for instruction in instructions):
                return
            answers = tuple(answer for instruction in instructions for answer in self._obey(instruction))
            if answers or not self._engine.has_work:
                self._send(Report(answers=answers, stats=self._engine.stats()))
            if self._engine.has_work:
                self._send(self._step())

    def _take(self) -> Iterator[Instruction]:
        """Every instruction that waits. Blocks for the first one where there is nothing else to do."""
        try:
            if not self._engine.has_work:
                yield self._inbox.get()
            elif self._is_stuck:
                yield self._inbox.get(timeout=PAUSE_S)
            while True:
                yield self._inbox.get_nowait()
        except queue.Empty:
            return

    def _obey(self, instruction: Instruction) -> Iterator[tuple[str, EspalierError | None]]:
        """The answer to a submission, and to those whose grammar could not be loaded."""
        match instruction:
            case Submit():
                yield instruction.request.request_id, self._submit(instruction)
            case Abort():
                self._awaited.leave(instruction.request_id)
                self._engine.abort(instruction.request_id)
            case LoadedGrammar():
                yield from self._load(instruction)
            case DropGrammar():
                self._grammars.drop(instruction.key)
            case Ping() | Shutdown():
                pass

    def _load(self, loaded: LoadedGrammar) -> Iterator[tuple[str, EspalierError | None]]:
        """Keep a grammar, and hand it to those who wait for it; why not, where it could not be loaded."""
        self._grammars.put(loaded.key, loaded.grammar)
        self._arrivals.pop(loaded.key, None)
        for request_id, awaited in self._awaited.end(loaded.key):
            try:
                awaited.keep(self._grammars.take(loaded.key))
            except EspalierError as error:
                yield request_id, error

    def _step(self) -> Report:
        events = tuple(self._engine.step())
        stats = self._engine.stats()
        self._is_stuck = not events and stats.totals.steps == self._steps
        self._steps = stats.totals.steps
        return Report(events=events, stats=stats)

    def _submit(self, submit: Submit) -> EspalierError | None:
        """Queue a request; why not, where it is refused."""
        try:
            self._engine.submit(self._complete(submit))
        except EspalierError as error:
            self._awaited.leave(submit.request.request_id)
            return error
        except Exception:
            self._awaited.leave(submit.request.request_id)
            log.exception("request %s could not be submitted", submit.request.request_id)
            return EspalierError(f"request {submit.request.request_id} failed; the server's log has the cause")
        return None

    def _complete(self, submit: Submit) -> GenerationRequest:
        """The request with what could not travel: the grammar behind its key, a checker for its stop strings."""
        key, grammar, awaited = submit.grammar_key, None, None
        if key is not None and key in self._grammars:
            grammar = self._grammars.take(key)
        elif key is not None:
            awaited = self._awaited.begin(submit.request.request_id, key)
        token_bytes = self._vocabulary.tokens if key is None else self._vocabulary.spelled
        stop = TokenStopChecker(StopAutomaton(submit.stop_strings), token_bytes) if submit.stop_strings else None
        return replace(submit.request, grammar=grammar, awaited=awaited, stop=stop)
