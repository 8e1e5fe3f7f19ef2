"""Terminals against the rule that the longest word wins.

llguidance's lexer follows all terminals that may stand at a place; a word ends where the next byte continues none of
them, and what ends there is every terminal that the word is of. So a word is lost where the byte that should follow it
continues another terminal (or its own).

Invariant: of what passes, GBNF loses no text, and from no prefix of a Lark grammar's texts all endings are lost.
"""

from __future__ import annotations

import contextlib
import itertools

from decoding.errors import ConstraintError
from grammars.context_free.overlap import ByteSet, Overlaps, TooMuchWorkError
from grammars.context_free.positions import Positions, PositionSet, members
from grammars.context_free.syntax import FIELD, Syntax, Terminal, walk
from grammars.context_free.terminals import TerminalChoice
from grammars.regular.automaton import Automaton, build
from grammars.regular.charset import CharSet
from grammars.regular.nodes import Chars, Expression, Text, fingerprint

MAX_ROUNDS = 12
"""Terminals are broken one level at a time; after so many times, or too much work, every character is one."""
MAX_SHARED = 50


class _Lexer:
    """What meets at the positions of a syntax."""

    def __init__(self, syntax: Syntax) -> None:
        self.positions = Positions(syntax)
        numbers: dict[str, int] = {}
        automata: list[Automaton] = []
        self.kinds: list[int] = []
        """The terminal at each position, as a number; equal terminals are one."""
        for terminal in self.positions.terminals:
            key = fingerprint(terminal.expression)
            if key not in numbers:
                numbers[key] = len(automata)
                automata.append(build(terminal.expression, field=FIELD))
            self.kinds.append(numbers[key])
        self._overlaps = Overlaps(automata)
        self.together = self.positions.together(self._share)

    def extends(self, one: int, other: int) -> ByteSet:
        """Bytes that continue the terminal of ``other`` past a word of the terminal of ``one``."""
        return self._overlaps.meeting(self.kinds[one], self.kinds[other]).extends

    def first_bytes(self, positions: PositionSet) -> ByteSet:
        """Bytes with which the words at some positions begin."""
        found = 0
        for kind in {self.kinds[position] for position in members(positions)}:
            found |= self._overlaps.first_bytes(kind)
        return found

    def most_shared(self) -> int:
        """No text is a word of more terminals that can stand at one place (one more than the graph's degeneracy)."""
        sharing: dict[int, set[int]] = {kind: set() for kind in self.kinds}
        for one, others in enumerate(self.together):
            for other in members(others):
                if self._share(one, other):
                    sharing[self.kinds[one]].add(self.kinds[other])
        most = 0
        while sharing:
            kind = min(sharing, key=lambda kind: len(sharing[kind]))
            most = max(most, len(sharing[kind]))  # itself is among them
            for other in sharing.pop(kind) - {kind}:
                sharing[other].discard(kind)
        return most

    def _share(self, one: int, other: int) -> bool:
        return self._overlaps.meeting(self.kinds[one], self.kinds[other]).is_shared


def without_losses(syntax: Syntax) -> Syntax:
    """The same texts, with terminals as large as no reading of a text is lost to a longer word."""
    choice = TerminalChoice(syntax)
    with contextlib.suppress(TooMuchWorkError):
        for _ in range(MAX_ROUNDS):
            chosen = choice.syntax()
            lexer = _Lexer(chosen)
            greedy = _greedy_terminals(lexer)
            if not greedy:
                _check_sharing(lexer.most_shared())
                return chosen
            choice.break_up(greedy)
    choice.break_all()
    chosen = choice.syntax()
    _check_sharing(_most_classes(chosen))
    return chosen


def _greedy_terminals(lexer: _Lexer) -> list[Terminal]:
    """Terminals that go on where another one, or they themselves, should have ended."""
    greedy: set[int] = set()
    for position, follow in enumerate(lexer.positions.follow):
        next_bytes = lexer.first_bytes(follow)
        for other in members(lexer.together[position]):
            if other not in greedy and lexer.extends(position, other) & next_bytes:
                greedy.add(other)
    return [lexer.positions.terminals[position] for position in sorted(greedy)]


def check_endings(syntax: Syntax, skipped: frozenset[Terminal]) -> None:
    """Raise ConstraintError where a terminal can never be followed by what the rules put after it.

    ``skipped`` are the places in the rules from which every place after them can be reached as well.
    """
    try:
        _check_endings(_Lexer(syntax), skipped)
    except TooMuchWorkError:
        message = "has too many terminals, or too large ones, to see which can follow which; make them fewer or simpler"
        raise ConstraintError(FIELD, message) from None


def _check_endings(lexer: _Lexer, skipped: frozenset[Terminal]) -> None:
    terminals = lexer.positions.terminals
    _check_sharing(lexer.most_shared())
    longer = [_continued(lexer, position) for position in range(len(terminals))]
    skips = sum(1 << position for position, terminal in enumerate(terminals) if terminal in skipped)

    def can_follow(one: int, other: int) -> bool:
        return bool(lexer.first_bytes(1 << other) & ~longer[one])

    for one, follow in enumerate(lexer.positions.follow):
        passable = [skip for skip in members(follow & skips) if can_follow(one, skip)]
        for other in members(follow & ~skips):
            if not can_follow(one, other) and not any(can_follow(skip, other) for skip in passable):
                raise ConstraintError(
                    FIELD,
                    f"can never put {terminals[other].name} after {terminals[one].name}: a terminal takes the longest"
                    f" text, so that the start of {terminals[other].name} is always read as a longer terminal; let one"
                    " of them begin or end with something else",
                )


def _most_classes(syntax: Syntax) -> int:
    """Of terminals of one character, how many there are for the same one at most."""
    nodes = itertools.chain.from_iterable(map(walk, syntax.rules.values()))
    sets = {_charset(node.expression) for node in nodes if isinstance(node, Terminal)}
    edges = sorted(
        edge for charset in sets for first, last in charset.ranges() for edge in ((first, 1), (last + 1, -1))
    )
    return max(itertools.accumulate(change for _, change in edges), default=0)


def _charset(expression: Expression) -> CharSet:
    if isinstance(expression, Text):
        return CharSet.of(expression.text)
    assert isinstance(expression, Chars)
    return expression.charset


def _check_sharing(most: int) -> None:
    """The work for a byte of a text grows with the number of terminals that it can be a word of."""
    if most > MAX_SHARED:
        raise ConstraintError(
            FIELD, f"has {most} terminals of which a text can be any, at the same place; the limit is {MAX_SHARED}"
        )


def _continued(lexer: _Lexer, position: int) -> ByteSet:
    continued = 0
    for other in members(lexer.together[position]):
        continued |= lexer.extends(position, other)
    return continued
