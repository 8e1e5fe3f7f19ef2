"""How many guesses of a batch are worth a step's time.

A step over S sequences with n guesses commits S tokens and the guesses that are accepted; it takes ``ms(S + n)``. Of
all guesses of all sequences the likeliest come first (a guess is at most as likely as its parent, so parents come
before children), and n is where tokens per millisecond are most. Rows beside the trees (chunks of prompts) are computed
in any case, so that guesses cost what they add to them. Invariant: what is kept of each tree is a tree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt


def best_nodes(
    chances: Sequence[Sequence[float]], ms: Callable[[int], float], *, other_rows: int = 0
) -> list[list[int]]:
    """The nodes of each tree that pay, ascending, node 0 always among them.

    Args:
        chances: for each tree and node the probability that the walk gets there; node 0 has 1, and no node more than
            its parent.
        ms: cost of a step by rows.
        other_rows: rows of the step beside these trees (chunks of prompts).
    """
    order = _likeliest(chances)
    kept = [[0] for _ in chances]
    for tree, node in order[: best_count([chances[t][n] for t, n in order], ms, len(chances), other_rows)]:
        kept[tree].append(node)
    return [sorted(nodes) for nodes in kept]


def best_count(descending: Sequence[float], ms: Callable[[int], float], sequences: int, other_rows: int = 0) -> int:
    """How many of these guesses to take: the argmax of expected tokens per millisecond."""
    tokens = sequences + np.concatenate([[0.0], np.cumsum(descending)])
    plain = sequences + other_rows
    beside = ms(plain) - ms(sequences) if other_rows else 0.0
    costs = np.array([ms(plain + count) - beside for count in range(len(tokens))])
    return int((tokens / costs).argmax())


def path_chances(parents: Sequence[int], own: Sequence[float]) -> list[float]:
    """The chance of reaching each node, where ``own[i]`` is that of node i once its parent is reached."""
    reached = [1.0]
    for node in range(1, len(parents)):
        reached.append(reached[parents[node]] * own[node])
    return reached


def _likeliest(chances: Sequence[Sequence[float]]) -> list[tuple[int, int]]:
    """(tree, node) of every guess, the likeliest first, earlier nodes first among equals."""
    pairs = [(tree, node) for tree, row in enumerate(chances) for node in range(1, len(row))]
    values: npt.NDArray[np.float64] = np.array([-chances[tree][node] for tree, node in pairs])
    return [pairs[index] for index in np.argsort(values, kind="stable")]
