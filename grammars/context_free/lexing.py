"""Terminals against the rule that the longest word wins.

llguidance's lexer follows all terminals that may stand at a place; a word ends where the next byte continues none of
them, and what ends there is every terminal that the word is of. So a word is lost where the byte that should follow it
continues another terminal (or its own).

Invariant: of what passes, GBNF loses no text, and from no prefix of a Lark grammar's texts all endings are lost.
"""

from __future__ import annotations

import itertools

from decoding.errors import ConstraintError
from grammars.context_free.overlap import ByteSet, Overlaps
from grammars.context_free.positions import MAX_POSITIONS, Positions, PositionSet, members
from grammars.context_free.syntax import FIELD, Syntax, Terminal, walk
from grammars.context_free.terminals import TerminalChoice
from grammars.regular.automaton import Automaton, build
from grammars.regular.nodes import fingerprint

MAX_ROUNDS = 12
"""Terminals are broken one level at a time; after so many times, or at too many places, every character is one."""


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

    def _share(self, one: int, other: int) -> bool:
        return self._overlaps.meeting(self.kinds[one], self.kinds[other]).is_shared


def without_losses(syntax: Syntax) -> Syntax:
    """The same texts, with terminals as large as no reading of a text is lost to a longer word."""
    choice = TerminalChoice(syntax)
    for _ in range(MAX_ROUNDS):
        chosen = choice.syntax()
        nodes = itertools.chain.from_iterable(map(walk, chosen.rules.values()))
        if sum(isinstance(node, Terminal) for node in nodes) > MAX_POSITIONS:
            break
        greedy = _greedy_terminals(chosen)
        if not greedy:
            return chosen
        choice.break_up(greedy)
    choice.break_all()
    return choice.syntax()


def _greedy_terminals(syntax: Syntax) -> list[Terminal]:
    """Terminals that go on where another one, or they themselves, should have ended."""
    lexer = _Lexer(syntax)
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
    lexer = _Lexer(syntax)
    terminals = lexer.positions.terminals
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


def _continued(lexer: _Lexer, position: int) -> ByteSet:
    continued = 0
    for other in members(lexer.together[position]):
        continued |= lexer.extends(position, other)
    return continued
