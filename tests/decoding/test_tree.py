from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoding.tree import DraftTree


@st.composite
def trees(draw):
    size = draw(st.integers(1, 12))
    parents = [-1, *(draw(st.integers(0, node - 1)) for node in range(1, size))]
    return DraftTree(tokens=tuple(draw(st.integers(0, 3)) for _ in parents), parents=tuple(parents))


@given(trees())
def test_views_agree_with_the_parents(tree):
    for node in range(len(tree)):
        path = tree.path(node)
        assert path[0] == 0
        assert path[-1] == node
        assert [tree.parents[below] for below in path[1:]] == list(path[:-1])
        assert tree.depths()[node] == len(path) - 1
        assert list(tree.children()[node]) == [child for child in range(len(tree)) if tree.parents[child] == node]
    assert pickle.loads(pickle.dumps(tree)) == tree


def test_a_chain_is_a_tree_without_branches():
    chain = DraftTree.chain([7, 8, 9])
    assert chain == DraftTree(tokens=(7, 8, 9), parents=(-1, 0, 1))
    assert chain.children() == ((1,), (2,), ())


@pytest.mark.parametrize(
    ("tokens", "parents"),
    [((), ()), ((1,), (0,)), ((1, 2), (-1,)), ((1, 2), (-1, 1)), ((1, 2), (-1, 2)), ((1, 2, 3), (-1, 0, -1))],
)
def test_parents_come_before_their_children(tokens, parents):
    with pytest.raises(ValueError, match=r"root|before"):
        DraftTree(tokens=tokens, parents=parents)
