"""The engine's process: builds the engine and runs its loop.

A thread of its own reads the pipe, so that the parent never waits for a step. Invariant: the process ends when its
parent does, because the pipe then comes to its end.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

from decoding.errors import EspalierError, ModelLoadError
from engine.loading.files import ModelFiles
from grammars.compiling.messages import shared_objects, unpack
from grammars.matching.trie import TokenTrie
from grammars.protocol import Grammar
from grammars.warm_up import warm_up
from service import garbage
from service.awaited_grammars import Arrivals
from service.engine_loop import Engine, EngineLoop, Instruction, LoadedGrammar
from service.engine_messages import BuildFailed, Command, DefineGrammar, Found, Ready, Tokens

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSetup:
    """What the process is started with; picklable, and nothing of it needs torch in the parent.

    Attributes:
        find: has the model on disk.
        load_tokens: reads its tokenizer, so that the parent can go on with it.
        build: makes the engine.
        configure_logging: called before the others, which are called in this order.
    """

    find: Callable[[], ModelFiles]
    load_tokens: Callable[[ModelFiles], TokenTrie]
    build: Callable[[ModelFiles, TokenTrie], Engine]
    configure_logging: Callable[[], None]


def run_engine(connection: Connection, setup: EngineSetup) -> None:
    """Main function of the process."""
    # Signals reach the whole process group, but when to end is the parent's decision.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    setup.configure_logging()
    inbox: queue.SimpleQueue[Instruction] = queue.SimpleQueue()
    shared: list[object] = []
    arrivals: Arrivals = {}
    threading.Thread(target=_read, args=(connection, shared, inbox, arrivals), name="commands", daemon=True).start()
    try:
        files = setup.find()
        connection.send(Found(files=files))
        trie = setup.load_tokens(files)
        shared += shared_objects(trie)
        connection.send(Tokens(trie=trie))
        engine = setup.build(files, trie)
        warm_up(trie)
        garbage.settle()
    except EspalierError as error:
        connection.send(BuildFailed(error=error))
        return
    except Exception as error:
        log.exception("the engine could not be built")
        message = f"the engine could not be built: {type(error).__name__}: {error}"
        connection.send(BuildFailed(error=ModelLoadError(message)))
        return
    connection.send(Ready(card=engine.card))
    EngineLoop(engine, trie.vocabulary, inbox, connection.send, arrivals).run()


def _read(
    connection: Connection, shared: Sequence[object], inbox: queue.SimpleQueue[Instruction], arrivals: Arrivals
) -> None:
    try:
        while True:
            command: Command = connection.recv()
            if isinstance(command, DefineGrammar):
                loaded = _load(command, shared)
                arrivals[loaded.key] = loaded.grammar  # for the step that may be under way
                inbox.put(loaded)
            else:
                inbox.put(command)
    except (EOFError, OSError):
        os._exit(0)  # the parent is gone, and the main thread may be in the middle of a long step


def _load(definition: DefineGrammar, shared: Sequence[object]) -> LoadedGrammar:
    """``shared`` are the objects that both processes hold."""
    grammar: Grammar | EspalierError
    try:
        grammar = unpack(definition.packed, shared)
    except Exception as error:
        log.exception("grammar %s could not be unpacked", definition.key)
        grammar = EspalierError(f"the compiled constraint could not be loaded ({type(error).__name__})")
    return LoadedGrammar(key=definition.key, grammar=grammar)
