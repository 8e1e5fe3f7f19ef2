from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoding.tree import DraftTree
from decoding.verify import walk

TOKENS = 3


def target(path: tuple[int, ...]) -> int:
    """A deterministic target: the next token is a function of all tokens so far."""
    return hashlib.sha256(bytes(path)).digest()[0] % TOKENS


@st.composite
def trees(draw):
    size = draw(st.integers(1, 20))
    parents = [-1, *(draw(st.integers(max(0, node - 3), node - 1)) for node in range(1, size))]
    return DraftTree(tokens=tuple(draw(st.integers(0, TOKENS - 1)) for _ in parents), parents=tuple(parents))


def drawn_at_every_node(tree):
    return [target(tuple(tree.tokens[step] for step in tree.path(node))) for node in range(len(tree))]


@given(trees())
def test_a_walk_commits_what_decoding_step_by_step_gives(tree):
    outcome = walk(tree, drawn_at_every_node(tree))
    text = [tree.tokens[0]]
    for token in outcome.tokens:
        text.append(target(tuple(text)))
        assert token == text[-1]
    assert len(outcome.nodes) == len(outcome.tokens)
    assert [tree.tokens[node] for node in outcome.nodes] == text[:-1]


@given(trees())
def test_a_walk_goes_as_deep_as_the_guesses_are_right(tree):
    outcome = walk(tree, drawn_at_every_node(tree))
    below = [tree.tokens[child] for child in tree.children()[outcome.nodes[-1]]]
    assert outcome.tokens[-1] not in below


def test_a_perfect_chain_is_accepted_whole_and_gains_a_token():
    text = [1]
    for _ in range(6):
        text.append(target(tuple(text)))
    chain = DraftTree.chain(text[:-1])
    outcome = walk(chain, drawn_at_every_node(chain))
    assert outcome.nodes == tuple(range(6))
    assert outcome.tokens == tuple(text[1:])


def test_a_node_without_a_token_ends_the_walk():
    outcome = walk(DraftTree.chain([1, 2, 0]), [2, -1, 0])
    assert outcome.nodes == (0, 1)
    assert outcome.tokens == (2, -1)


def test_one_token_per_node_is_wanted():
    with pytest.raises(AssertionError):
        walk(DraftTree.chain([1, 2]), [2])
