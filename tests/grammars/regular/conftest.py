"""Words drawn from automata, and the slow twin of the algebra."""

import gzip
import itertools
import json
import os
import pathlib
import random

import pytest

from grammars.regular import nodes as n


@pytest.fixture(scope="session")
def draw_word():
    """A word by a random walk of some bytes, then the shortest way to the end."""

    def draw(automaton, rng: random.Random, steps: int) -> bytes:
        state, word = automaton.start, bytearray()
        for _ in range(steps):
            moves = automaton.moves(state)
            if not moves or (automaton.accepting(state) and rng.random() < 0.1):
                break
            members, state = rng.choice(moves)
            word.append(int(rng.choice(members)))
        return bytes(word) + automaton.completion(state)

    return draw


@pytest.fixture(scope="session")
def reachable():
    """The states within reach of the start, at most ``limit`` of them."""

    def explore(automaton, limit: int) -> list[int]:
        found = [automaton.start] if automaton.start else []
        for state in found:
            if len(found) >= limit:
                break
            found += [target for _, target in automaton.moves(state) if target not in set(found)]
        return found

    return explore


class Denotation:
    """The words of at most ``longest`` characters of an alphabet, by the definition of each operator."""

    def __init__(self, alphabet: str, longest: int) -> None:
        self._longest = longest
        self.every = {"".join(w) for size in range(longest + 1) for w in itertools.product(alphabet, repeat=size)}
        self._singles = set(alphabet)

    def of(self, node: n.Expression) -> set[str]:
        parts = [self.of(operand) for operand in node.operands]
        match node:
            case n.Chars():
                return {c for c in self._singles if ord(c) in node.charset}
            case n.Text():
                return {node.text} & self.every
            case n.MachineLanguage():
                return set(node.machine.words) & self.every
            case n.Concat():
                return self._concatenated(parts)
            case n.Union():
                return set().union(*parts)
            case n.Intersection():
                return set.intersection(*parts)
            case n.Complement():
                return self.every - parts[0]
            case n.Repeat():
                return self._repeated(parts[0], node.least, node.most)
            case n.Scope():
                return parts[0]
        raise AssertionError(node)

    def _concatenated(self, parts: list[set[str]]) -> set[str]:
        words = {""}
        for part in parts:
            words = {w + v for w in words for v in part if len(w) + len(v) <= self._longest}
        return words

    def _repeated(self, body: set[str], least: int, most: int | None) -> set[str]:
        turn, found = {""}, set()
        for count in itertools.count():
            if count >= least:
                if turn <= found:
                    return found
                found |= turn
            if count == most:
                return found
            longer = self._concatenated([turn, body])
            if count < least and longer == turn:
                return self._repeated(body, count, most)
            turn = longer
        raise AssertionError


@pytest.fixture(scope="session")
def denotation():
    return Denotation


@pytest.fixture(scope="session")
def real_schemas():
    """Schemas that people wrote (JSONSchemaBench)."""
    folder = pathlib.Path(os.environ.get("ESPALIER_TEST_DATA", pathlib.Path(__file__).parents[4] / "shared" / "data"))
    path = folder / "maskbench-sample.jsonl.gz"
    if not path.exists():
        pytest.skip(f"{path} is absent; set ESPALIER_TEST_DATA to the folder that holds it")
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        return [json.loads(line)["schema"] for line in lines]
