"""A small vocabulary, and texts and walks through the masks of a schema over it."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest

from grammars.constraint import Whitespace
from grammars.json_schema.compile import JsonOptions, compile_json_schema
from grammars.matching.constraint import LazyGrammar
from grammars.matching.trie import TokenTrie
from grammars.vocabulary import Vocabulary

PIECES = (
    *(bytes((byte,)) for byte in range(256)),
    *(
        b'{"',
        b'":',
        b'": ',
        b'":"',
        b'",',
        b'", "',
        b'","',
        b'"}',
        b"}}",
        b"]}",
        b"},{",
        b", ",
        b'{"a":',
        b'"a"',
        b'"b":',
    ),
    *(b"true", b"null", b"10", b"00", b"ab", b"aa", b"  ", b"\n  ", b"\xc3\xa9", b"\xa9x", b'a","b', b"[]", b"{}"),
)


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    """All single bytes, pieces that cross the borders of JSON tokens, two EOS ids, and padding."""
    eos = (len(PIECES), len(PIECES) + 1)
    return Vocabulary(
        tokens=(*PIECES, b"", b"", b""),
        special_ids=frozenset((*eos, len(PIECES) + 2)),
        eos_ids=eos,
        size=len(PIECES) + 7,
    )


@pytest.fixture(scope="session")
def trie(vocabulary: Vocabulary) -> TokenTrie:
    return TokenTrie.of(vocabulary)


@pytest.fixture(scope="session")
def grammar_of(trie: TokenTrie) -> Callable[..., LazyGrammar]:
    def compiled(
        schema: Any, whitespace: Whitespace = Whitespace.COMPACT, *, integral_floats: bool = True
    ) -> LazyGrammar:
        return compile_json_schema(schema, JsonOptions(whitespace=whitespace, integral_floats=integral_floats)).bind(
            trie
        )

    return compiled


@pytest.fixture(scope="session")
def accepts() -> Callable[[LazyGrammar, str], bool]:
    """Whether a text, byte by byte, is legal under the masks and complete at its end."""

    def accepted(grammar: LazyGrammar, text: str) -> bool:
        matcher = grammar.matcher()
        for byte in text.encode():
            if byte not in matcher.mask():
                return False
            matcher.advance(byte)
        return matcher.is_accepting

    return accepted


@pytest.fixture(scope="session")
def walk(vocabulary: Vocabulary) -> Callable[..., str]:
    """A text drawn through the masks: random tokens at first, then a way to the end, which must exist."""

    def walked(grammar: LazyGrammar, seed: int, num_random: int = 25) -> str:
        draw = random.Random(seed)
        matcher = grammar.matcher()
        tokens: list[int] = []
        while len(tokens) < num_random:
            row = matcher.mask()
            legal = [token for token in range(vocabulary.size) if token in row]
            token = draw.choice(legal)
            matcher.advance(token)
            if matcher.is_finished:
                break
            tokens.append(token)
        if not matcher.is_finished:
            tokens += _some_end(matcher)
        return vocabulary.join(tokens).decode()

    return walked


LIKELY = tuple(
    gap.join(parts).encode()
    for gap in ("", " ")
    for parts in [('":', "0"), *((",", f'"{key}":', "0") for key in ("a", "b", "ab", "c", "d", "e"))]
)
"""Pieces that bring an object nearer to its end."""


def _some_end(matcher: Any) -> list[int]:
    """A way to the end; first with few bytes at each step, the punctuation of JSON among them, then with all."""
    for is_frugal in (True, False):
        path = _path_to_end(matcher, is_frugal)
        if path is not None:
            return path
    raise AssertionError("no end is near")


def _path_to_end(matcher: Any, is_frugal: bool) -> list[int] | None:
    """Best first over single bytes, by what is still open."""
    automaton = matcher._automaton
    count = itertools.count()
    queue = [(0, next(count), matcher._position, [])]
    seen = set()
    for _ in range(4000):
        if not queue:
            return None
        _, _, position, path = heapq.heappop(queue)
        if automaton.is_accepting(position.configuration):
            return path
        live = automaton.live_bytes(position.configuration)
        if is_frugal:
            live = [*dict.fromkeys([*(byte for byte in b'"]},: 0[{ntfa' if byte in live), *live[:1], *live[-1:]])]
        for byte in live:
            after = matcher._positions.read(position, bytes((byte,)))
            place = None if after is None else (after.configuration, _rivalled(after.memory))
            if after is not None and place not in seen:
                seen.add(place)
                depth = automaton.stacks.depth_of[after.configuration.stack]
                heapq.heappush(queue, (8 * depth + len(path), next(count), after, [*path, byte]))
    return None


def _rivalled(memory: Any) -> Any:
    """What of a memory bears on where a text can go on."""
    return tuple(partial for partial in memory.partials if memory.rivals(partial))
