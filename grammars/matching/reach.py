"""Where each legal token leads: the tokens of one configuration, grouped by the configuration after them.

Invariant: every token that is live by the tables is in exactly one group; what a sample must not repeat is none of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit

from grammars.matching.automaton import Configuration, PushdownAutomaton
from grammars.matching.memory import Event
from grammars.matching.trie import FIRST, SKIP
from grammars.matching.walk import Arrays, Ints

_BYTE, _DEPTH, _SKIP, _FIRST = range(4)  # as in grammars.matching.trie
_UNBUILT = -2  # as in grammars.matching.tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Tokens that lead to one configuration.

    Attributes:
        after: where they lead.
        tokens: their ids.
        is_plain: none of them changes the stack on its way.
    """

    after: Configuration
    tokens: npt.NDArray[np.int32]
    is_plain: bool


def reach(automaton: PushdownAutomaton, configuration: Configuration) -> tuple[Group, ...]:
    """The groups of all tokens that the tables allow. Raises GrammarStateError where states take too much work."""
    trie = automaton.trie
    states = np.zeros(len(trie), dtype=np.int32)
    crossings = np.empty(len(trie), dtype=np.int32)
    automaton.final(configuration.state)
    while True:
        count, missing = _plain(
            configuration.state, trie.nodes, automaton.tables.arrays, automaton.path, states, crossings
        )
        if missing < 0:
            break
        automaton.final(missing)
    token_states = np.repeat(states, np.diff(trie.nodes[:, FIRST]))
    groups = [
        Group(after=Configuration(state, configuration.stack), tokens=trie.tokens[token_states == state], is_plain=True)
        for state in np.unique(token_states).tolist()
        if state
    ]
    others: dict[Configuration, list[int]] = {}
    for node in crossings[:count].tolist():
        for token in trie.tokens[trie.nodes[node, FIRST] : trie.nodes[trie.nodes[node, SKIP], FIRST]].tolist():
            events: list[Event] = []
            after = automaton.read(configuration, trie.vocabulary.tokens[token], events)
            if after is not None:
                others.setdefault(after, []).append(token)
    groups += [
        Group(after=after, tokens=np.array(tokens, dtype=np.int32), is_plain=False) for after, tokens in others.items()
    ]
    return tuple(groups)


@njit(cache=True, nogil=True)
def _plain(  # noqa: PLR0917 - numba takes no keywords
    start: int, nodes: Ints, tables: Arrays, path: Ints, states: Ints, crossings: Ints
) -> tuple[int, int]:
    """The state at every trie node that is reached without a change of the stack, 0 at the others.

    ``crossings`` gets the nodes where the stack changes. Returns how many, and a state whose row is missing, or -1.
    """
    rows, final = tables[0], tables[1]
    path[0, 0] = start
    count = 0
    node = 0
    while node < len(nodes) - 1:
        level = nodes[node, _DEPTH]
        here = path[level, 0]
        code = rows[here, nodes[node, _BYTE]]
        if code > 0:
            states[node] = code
            path[level + 1, 0] = code
            node += 1
            continue
        if final[here] == _UNBUILT:
            return count, here
        stop = nodes[node, _SKIP]
        states[node:stop] = 0
        if code < 0 or final[here] >= 0:
            crossings[count] = node
            count += 1
        node = stop
    return count, -1
