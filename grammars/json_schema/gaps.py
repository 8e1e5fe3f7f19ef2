r"""Bounded white space between JSON tokens: nothing, one space or tab, or a line break with its indentation.

    position     0 ── " " or "\t" ──> 1
                 0 ── "\r" ──> 2 ── "\n" ──> 3 ── " " or "\t" ──> 4 ── ... ──> 3 + INDENT
                 0 ── "\n" ──> 3

Invariant: every run of white space is at most INDENT + 2 bytes long.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from grammars.matching.tables import NO_OUTCOME

INDENT = 48
"""Most characters of indentation after a line break."""
AFTER_SPACE = 1
AFTER_RETURN = 2
AFTER_BREAK = 3

_SPACE, _TAB, _BREAK, _RETURN = b" \t\n\r"

_MOVES: tuple[dict[int, int], ...] = (
    {_SPACE: AFTER_SPACE, _TAB: AFTER_SPACE, _BREAK: AFTER_BREAK, _RETURN: AFTER_RETURN},
    {},
    {_BREAK: AFTER_BREAK},
    *({_SPACE: AFTER_BREAK + used, _TAB: AFTER_BREAK + used} for used in range(1, INDENT + 1)),
    {},
)


def gap_automaton() -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], int]:
    """Rows and final outcomes of all positions, as states that count from 1; the first one is the state before."""
    rows = np.zeros((len(_MOVES), 256), dtype=np.int32)
    for position, moves in enumerate(_MOVES):
        for byte, after in moves.items():
            rows[position, byte] = after + 1
    final = np.zeros(len(_MOVES), dtype=np.int32)
    final[AFTER_RETURN] = NO_OUTCOME
    return rows, final, 1
