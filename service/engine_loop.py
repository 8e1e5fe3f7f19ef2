"""The loop of the engine's process: obey what waits, compute one step, report what came of it.

Invariant: everything that a step brings goes out as one message, and a command that fails touches its own request only.
"""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from decoding.errors import EspalierError
from engine.config import ModelCard
from engine.request import GenerationRequest, TokenEvent
from engine.stats import EngineStats
from grammars.protocol import Grammar
from service.engine_messages import Abort, DropGrammar, Ping, Report, Shutdown, Submit
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
        token_bytes: Sequence[bytes],
        inbox: queue.SimpleQueue[Instruction],
        send: Callable[[Report], None],
    ) -> None:
        """``token_bytes[i]`` are the bytes that token i adds to a text."""
        self._engine = engine
        self._token_bytes = token_bytes
        self._inbox = inbox
        self._send = send
        self._grammars = GrammarShelf()
        self._is_stuck = False
        self._steps = 0

    def run(self) -> None:
        """Turn until told to shut down."""
        while True:
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
        """The answer to a submission; nothing for other instructions."""
        match instruction:
            case Submit():
                yield instruction.request.request_id, self._submit(instruction)
            case Abort():
                self._engine.abort(instruction.request_id)
            case LoadedGrammar():
                self._grammars.put(instruction.key, instruction.grammar)
            case DropGrammar():
                self._grammars.drop(instruction.key)
            case Ping() | Shutdown():
                pass

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
            return error
        except Exception:
            log.exception("request %s could not be submitted", submit.request.request_id)
            return EspalierError(f"request {submit.request.request_id} failed; the server's log has the cause")
        return None

    def _complete(self, submit: Submit) -> GenerationRequest:
        """The request with what could not travel: the grammar behind its key, a checker for its stop strings."""
        grammar = None if submit.grammar_key is None else self._grammars.take(submit.grammar_key)
        stop = TokenStopChecker(StopAutomaton(submit.stop_strings), self._token_bytes) if submit.stop_strings else None
        return replace(submit.request, grammar=grammar, stop=stop)
