"""Small grammars to matchers, and the slow twin: what a text derives from, by trying."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import pytest

from grammars.backends.llguidance import LlguidanceGrammar
from grammars.backends.llguidance_kinds import compile_grammar
from grammars.constraint import ConstraintKind, ConstraintSpec, Notation
from grammars.limits import ConstraintLimits
from grammars.vocabulary import Vocabulary

Rules = Mapping[str, tuple]
"""Of ("text", "ab"), ("class", "ab"), ("rule", "r1"), ("seq", ...), ("or", ...) and ("repeat", least, most, body)."""


@pytest.fixture(scope="session")
def grammar_of(vocabulary: Vocabulary) -> Callable[..., LlguidanceGrammar]:
    def compiled(
        text: str, notation: Notation = Notation.GBNF, *, start: str = "", over: Vocabulary | None = None
    ) -> LlguidanceGrammar:
        spec = ConstraintSpec(kind=ConstraintKind.GRAMMAR, text=text, notation=notation, start=start)
        return compile_grammar(spec, over or vocabulary, ConstraintLimits(), key="key")

    return compiled


class Twin(Protocol):
    """Whether a text is derived from ``root``, and whether it is the beginning of one that is."""

    def __call__(self, rules: Rules, text: str) -> tuple[bool, bool]: ...


@pytest.fixture(scope="session")
def twin() -> Twin:
    return lambda rules, text: _Trial(rules, text).outcome


class _Trial:
    """All rules must have a text."""

    def __init__(self, rules: Rules, text: str) -> None:
        self.text, self.size = text, len(text)
        places = [(name, at) for name in rules for at in range(self.size + 1)]
        self.known_ends: dict[tuple[str, int], frozenset[int]] = dict.fromkeys(places, frozenset())
        self.known_begun = dict.fromkeys(places, False)
        while True:
            ends = {(name, at): self.ends(rules[name], at) for name, at in places}
            begun = {(name, at): self.begun(rules[name], at) for name, at in places}
            if (ends, begun) == (self.known_ends, self.known_begun):
                break
            self.known_ends, self.known_begun = ends, begun
        self.outcome = (self.size in self.known_ends["root", 0], self.known_begun["root", 0])

    def ends(self, node: tuple, at: int) -> frozenset[int]:
        """Where a text of the node that starts at a place can end."""
        match node:
            case ("text", literal):
                return frozenset({at + len(literal)} if self.text.startswith(literal, at) else ())
            case ("class", characters):
                return frozenset({at + 1} if self.text[at : at + 1] in (*characters,) else ())
            case ("rule", name):
                return self.known_ends[name, at]
            case ("or", *branches):
                return frozenset().union(*(self.ends(branch, at) for branch in branches))
            case ("seq", *parts):
                return self.after(parts, {at})
            case ("repeat", least, most, body):
                found, places = set(), frozenset({at})
                for count in range((least + self.size if most is None else most) + 1):
                    if count >= least:
                        found |= places
                    places = self.after([body], places)
                return frozenset(found)
        raise AssertionError(node)

    def after(self, parts: list[tuple], places: set[int]) -> frozenset[int]:
        for part in parts:
            places = frozenset().union(*(self.ends(part, place) for place in places))
        return frozenset(places)

    def begun(self, node: tuple, at: int) -> bool:
        """The rest of the text is the beginning of a text of the node."""
        rest = self.text[at:]
        match node:
            case ("text", literal):
                return literal.startswith(rest)
            case ("class", characters):
                return not rest or rest in (*characters,)
            case ("rule", name):
                return self.known_begun[name, at]
            case ("or", *branches):
                return any(self.begun(branch, at) for branch in branches)
            case ("seq", *parts):
                places = {at}
                for part in parts:
                    if any(self.begun(part, place) for place in places):
                        return True
                    places = self.after([part], places)
                return self.size in places
            case ("repeat", least, most, body):
                return self.begun(("seq", *[body] * (least + self.size if most is None else most)), at)
        raise AssertionError(node)
