from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.tree import DraftTree
from grammars.tree_walk import legal_nodes, masks


def random_tree(toy, seed: int, size: int) -> DraftTree:
    source = random.Random(seed)
    tokens = [source.randrange(toy.VOCAB) for _ in range(size)]
    return DraftTree(tokens=tuple(tokens), parents=(-1, *(source.randrange(node) for node in range(1, size))))


@given(seed=st.integers(0, 10_000), size=st.integers(1, 25), start=st.integers(0, 3))
@settings(max_examples=100, deadline=None)
def test_the_legal_part_and_its_masks_equal_fresh_matchers_along_every_path(toy, seed, size, start):
    grammar = toy.Grammar(max_tokens=4)
    matcher = grammar.matcher()
    for _ in range(start):
        matcher.advance(matcher.legal()[-1])
    before = list(matcher.history)
    tree = random_tree(toy, seed, size)

    def fresh(tokens):
        path = grammar.matcher()
        for token in [*before, *tokens]:
            path.advance(token)
        return path

    def is_legal(node):
        along = [tree.tokens[step] for step in tree.path(node)[1:]]
        return all(along[index] in fresh(along[:index]).legal() for index in range(len(along)))

    legal = tree.kept(legal_nodes(matcher, tree))
    assert legal.tokens == tuple(tree.tokens[node] for node in range(size) if is_legal(node))
    assert matcher.history == before
    rows = masks(matcher, legal)
    assert matcher.history == before
    for node, row in enumerate(rows):
        state = fresh([legal.tokens[step] for step in legal.path(node)[1:]])
        if state.is_finished:
            assert row is None
        else:
            assert [token for token in range(toy.VOCAB) if token in row] == sorted(state.legal())


@given(seed=st.integers(0, 10_000), size=st.integers(1, 25))
@settings(max_examples=60, deadline=None)
def test_drawn_children_stay_where_they_are_forbidden_without_what_hangs_below(toy, seed, size):
    matcher = toy.Grammar(max_tokens=4).matcher()
    tree = random_tree(toy, seed, size)
    drawn = {node for node in range(size) if node % 2 == 0}
    legal, kept = set(legal_nodes(matcher, tree)), legal_nodes(matcher, tree, drawn=drawn)
    assert legal <= set(kept)
    ended = {node for node in legal if node and tree.tokens[node] == toy.EOS}
    for node in range(1, size):
        parent = tree.parents[node]
        if node not in legal:
            assert (node in kept) == (parent in legal - ended and parent in drawn)
    rows = masks(matcher, tree.kept(kept))
    assert [rows[index] is None for index in range(len(kept))] == [node not in legal or node in ended for node in kept]
