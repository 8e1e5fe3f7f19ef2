"""What the service's process and the engine's process tell each other over their pipe.

The pipe is private to parent and child, and everything on it is pickled by our own code; a grammar travels as bytes of
its own, so that one which cannot be unpickled fails its own requests only. Invariant: commands are obeyed in the order
in which they were sent, so that a request may refer to what was defined before it.
"""

from __future__ import annotations

from dataclasses import dataclass

from decoding.errors import EspalierError
from engine.config import ModelCard
from engine.loading.files import ModelFiles
from engine.request import GenerationRequest, TokenEvent
from engine.stats import EngineStats
from grammars.matching.trie import TokenTrie


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    """Queue a request. Its grammar and stop checker are None and made in the engine's process from these.

    Attributes:
        request: the request without grammar and stop.
        grammar_key: key of a grammar, or None. One that is not defined yet may come later: until then the prompt is
            computed and nothing is drawn.
        stop_strings: none for no checker.
    """

    request: GenerationRequest
    grammar_key: str | None = None
    stop_strings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Abort:
    """End a request and free what it holds; ids that do not live are ignored."""

    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DefineGrammar:
    """Keep a grammar for requests to come, and for those that wait for it.

    It is packed as in `grammars.compiling.messages`, beside the shared trie.
    """

    key: str
    packed: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DropGrammar:
    """Forget a grammar. Running requests keep it until they end."""

    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ping:
    """Ask for a report, as a sign of life."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shutdown:
    """End the process."""


Command = Submit | Abort | DefineGrammar | DropGrammar | Ping | Shutdown


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The first answer: the model is on disk."""

    files: ModelFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """The second answer: the tokens of the model."""

    trie: TokenTrie


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The third answer: the engine is built."""

    card: ModelCard


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildFailed:
    """The engine could not be built; the process ends."""

    error: EspalierError


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What came of commands, or of a step.

    Attributes:
        answers: ids of requests that were submitted, with None where they were queued, else why not; and of those whose
            awaited grammar could not be loaded, with the reason.
        events: all tokens and finishes of the step.
        stats: the engine afterwards.
    """

    answers: tuple[tuple[str, EspalierError | None], ...] = ()
    events: tuple[TokenEvent, ...] = ()
    stats: EngineStats


Answer = Found | Tokens | Ready | BuildFailed | Report
