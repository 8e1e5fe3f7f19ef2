from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoding.distribution import Distribution
from decoding.tree import DraftTree
from drafters.growing import GrowingTree
from drafters.protocol import Draft, DraftContext

RUNS = st.lists(st.tuples(st.integers(0, 30), st.lists(st.integers(0, 12), min_size=1, max_size=5)), max_size=12)


class Even:
    """A language of numbers whose neighbours differ; 0 ends a text. Keeps the runs that it was advanced over."""

    def __init__(self, text=()):
        self.text = list(text)

    @property
    def is_finished(self):
        return self.text[-1:] == [0]

    def mask(self):
        assert not self.is_finished
        return [token for token in range(11) if [token] != self.text[-1:]]

    def advance(self, token):
        assert token in self.mask()
        self.text.append(token)

    def rollback(self, count):
        del self.text[len(self.text) - count :]

    def fork(self):
        return Even(self.text)


def make(limit=9, width=2, matcher=None):
    context = DraftContext(sequence_id=1, tokens=[5, 6, 7], num_prompt=2, matcher=matcher, limit=limit, width=width)
    return GrowingTree(context, mix=("x",), limit=limit, width=width)


def paths_of(runs, *, limit, width, legal):
    """The slow twin: a set of paths, grown token by token."""
    nodes, rejected = [()], 0
    for start, run in runs:
        path = nodes[start % len(nodes)]
        for token in run:
            longer = (*path, token)
            if longer not in nodes:
                siblings = [node for node in nodes if node[:-1] == path and len(node) == len(path) + 1]
                if len(nodes) >= limit or len(siblings) >= width:
                    break
                if not legal(longer):
                    rejected += 1
                    break
                nodes.append(longer)
            path = longer
    return nodes, rejected


@given(runs=RUNS, limit=st.integers(1, 9), width=st.integers(1, 3), constrained=st.booleans())
def test_a_tree_is_the_trie_of_its_legal_runs(runs, limit, width, constrained):
    def legal(path):
        text = [7, *path]
        return not constrained or all(left != right and right < 11 and left for left, right in itertools.pairwise(text))

    tree = make(limit, width, Even([7]) if constrained else None)
    for start, run in runs:
        tree.extend(start % len(tree), run, "x")
    draft = tree.draft()
    nodes, rejected = paths_of(runs, limit=limit, width=width, legal=legal)
    assert [tuple(tree.path(node)) for node in range(len(tree))] == nodes
    assert draft.rejected == rejected
    assert draft.tree.tokens[0] == 7
    assert draft.sources == ("", *["x"] * (len(nodes) - 1))


@given(runs=RUNS, visits=st.lists(st.integers(0, 30), max_size=12))
def test_the_cursor_is_in_the_state_of_the_node_that_was_asked_for(runs, visits):
    matcher = Even([7])
    tree = make(9, 3, matcher)
    for start, run in runs:
        tree.extend(start % len(tree), run, "x")
    for visit in visits:
        node = visit % len(tree)
        assert tree.matcher(node).text == [7, *tree.path(node)]
    assert matcher.text == [7]


def test_tips_are_leaves_of_others_and_told_once():
    tree = make(limit=9)
    assert tree.tips("a") == [0]
    assert tree.tips("a") == []
    end = tree.extend(0, [1, 2], "a")
    assert tree.tips("a") == []
    assert tree.tips("b") == [end]
    other = tree.extend(0, [3], "b")
    assert tree.tips("a") == [other]
    tree.close()
    assert tree.room == 0


def test_the_tail_crosses_from_the_path_into_the_text():
    tree = make()
    node = tree.extend(0, [8, 9], "x")
    assert [tree.tail(node, count) for count in (1, 2, 3, 9)] == [[9], [8, 9], [7, 8, 9], [5, 6, 7, 8, 9]]
    assert tree.tail(0, 2) == [6, 7]


def test_drawn_children_stay_alone_and_go_with_their_parent():
    tree = make(limit=9, width=2)
    chosen = tree.extend(0, [1], "x")
    proposal = Distribution.of(np.array([3, 4, 8]), np.array([0.5, 0.3, 0.2]))
    tree.extend_drawn(chosen, [8, 3], proposal, "drawing")
    assert tree.extend(chosen, [4], "x") == chosen, "a sibling that was not drawn belies the proposal"
    below = tree.extend(chosen, [3, 5], "x")
    draft = tree.draft()
    assert draft.tree.tokens == (7, 1, 8, 3, 5)
    assert draft.proposals == {chosen: proposal}
    assert draft.kept([0, 1, 2, 3]).proposals == {1: proposal}
    assert draft.kept([0, 1]).proposals == {}
    pruned = tree.draft([0])
    assert (pruned.tree.tokens, pruned.proposals) == ((7, 1, 8, 3), {1: proposal})
    assert draft.sources[below] == "x"


@pytest.mark.parametrize(("tokens", "node"), [((3, 5), 0), ((3, 3), 0), ((3, 4), 3)])
def test_a_draft_cannot_claim_what_was_not_drawn(tokens, node):
    proposal = Distribution.of(np.array([3, 4]), np.array([0.5, 0.5]))
    tree = DraftTree(tokens=(7, *tokens), parents=(-1, 0, 0))
    with pytest.raises(ValueError, match=r"drawn from its proposal|not in its tree"):
        Draft(tree=tree, proposals={node: proposal})
