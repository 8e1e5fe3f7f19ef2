"""Fixtures of the service's tests: a fake engine in a real process, its vocabulary, and a server around it."""

from __future__ import annotations

import functools
import logging
from collections.abc import AsyncIterator, Callable

import pytest

from engine.loading.directory import read_directory
from grammars.matching.trie import TokenTrie
from grammars.vocabulary import load_vocabulary
from service.engine_client import EngineClient
from service.engine_process import EngineSetup
from tests.service import fake_engine


@pytest.fixture(scope="session")
def fake():
    """The module of the fake engine."""
    return fake_engine


@pytest.fixture(scope="session")
def model_files(tiny_model_dir):
    return read_directory(tiny_model_dir(), "fake")


@pytest.fixture(scope="session")
def trie(model_files) -> TokenTrie:
    return TokenTrie.of(load_vocabulary(model_files.tokenizer, eos_token_ids=model_files.eos_token_ids, size=520))


@pytest.fixture
def engine_setup(trie) -> Callable[..., EngineSetup]:
    """Factory: ``engine_setup(build=None, **arguments of FakeEngine)``."""

    def make(build=None, **options) -> EngineSetup:
        build = build or functools.partial(fake_engine.FakeEngine, **options)
        configure = functools.partial(logging.basicConfig, level=logging.INFO)
        return EngineSetup(build=build, trie=trie, configure_logging=configure)

    return make


@pytest.fixture
async def start_engine(engine_setup) -> AsyncIterator[Callable[..., EngineClient]]:
    """Factory of running engines: ``await start_engine(stall_s=60, **arguments of engine_setup)``."""
    clients = []

    async def start(*, stall_s: float = 60.0, **options) -> EngineClient:
        clients.append(await EngineClient.start(engine_setup(**options), stall_s=stall_s))
        return clients[-1]

    yield start
    for client in clients:
        await client.close()
