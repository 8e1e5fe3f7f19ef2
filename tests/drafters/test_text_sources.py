"""Prompt lookup and suffix counts, against searching the whole text anew."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafters import ngram, suffix_tree
from drafters.growing import GrowingTree
from drafters.ngram import NgramSource
from drafters.protocol import DraftContext
from drafters.suffix import Memory, SuffixSource
from drafters.suffix_tree import DEPTH, SuffixTree

TEXTS = st.lists(st.integers(0, 3), min_size=1, max_size=40)


def grow(source, tokens, *, sequence_id=1, tenant="", limit=9, width=2):
    context = DraftContext(
        sequence_id=sequence_id, tenant=tenant, tokens=tokens, num_prompt=1, matcher=None, limit=limit, width=width
    )
    tree = GrowingTree(context, mix=(source.name,), limit=limit, width=width)
    source.grow([tree])
    return tree


def searched(text, width):
    """Longest match first, the most recent first among equals, by searching."""
    size = ngram.KEY
    places = [place for place in range(size, len(text)) if text[place - size : place] == text[-size:]]
    places = places[-(ngram.PLACES - 1) :]

    def matched(place):
        longest = min(place, len(text), ngram.LONGEST_MATCH)
        return max(size for size in range(longest + 1) if text[place - size : place] == text[len(text) - size :])

    runs: dict[int, list[int]] = {}
    for place in sorted(places, key=lambda place: (matched(place), place), reverse=True):
        if len(runs) < width:
            runs.setdefault(text[place], text[place : place + ngram.GUESSES_PER_MATCHED * matched(place)])
    return list(runs.values())


@given(text=TEXTS, cuts=st.lists(st.integers(1, 40), max_size=3), width=st.integers(1, 3))
def test_an_index_that_grew_guesses_what_a_search_of_the_text_finds(text, cuts, width):
    source = NgramSource()
    for cut in sorted(cuts):
        grow(source, text[:cut])
    source.grow([])
    tree = grow(source, text, limit=1, width=width)
    assert [list(run) for run in source.guess(tree, 0)] == searched(text, width)
    source.forget(1)
    assert not source._indices


def test_prompt_lookup_reads_on_behind_guesses_of_others():
    source = NgramSource()
    tokens = [1, 2, 3, 4, 9]
    context = DraftContext(sequence_id=1, tokens=tokens, num_prompt=1, matcher=None, limit=9)
    tree = GrowingTree(context, mix=("ngram",), limit=9, width=1)
    tree.extend(0, [1, 2, 3], "other")
    source.grow([tree])
    assert tree.draft().tree.tokens == (9, 1, 2, 3, 4, 9)
    assert tree.draft().sources == ("", "other", "other", "other", "ngram", "ngram")


def runs_of(texts):
    counts: Counter[tuple[int, ...]] = Counter()
    for text in texts:
        for start in range(len(text)):
            counts.update(tuple(text[start:end]) for end in range(start + 1, min(len(text), start + DEPTH) + 1))
    return counts


def stored(tree):
    counts = Counter()
    waiting = [((), tree._root)]
    while waiting:
        run, node = waiting.pop()
        for token, child in node.children.items():
            counts[*run, token] = child.count
            waiting.append(((*run, token), child))
    return counts


@given(texts=st.lists(TEXTS, max_size=5), data=st.data())
def test_a_suffix_tree_counts_every_run_and_forgets_exactly(texts, data):
    tree = SuffixTree()
    for text in texts:
        tree.add(text)
    assert stored(tree) == runs_of(texts)
    gone = data.draw(st.lists(st.sampled_from(range(len(texts))), unique=True)) if texts else []
    for index in gone:
        tree.remove(texts[index])
    left = [text for index, text in enumerate(texts) if index not in gone]
    assert stored(tree) == runs_of(left)


@given(texts=st.lists(TEXTS, max_size=4), tail=TEXTS)
def test_the_longest_known_suffix_tells_what_followed(texts, tail):
    tree = SuffixTree()
    for text in texts:
        tree.add(text)
    runs = runs_of(texts)
    expected = (0, {})
    for length in range(1, min(DEPTH - 1, len(tail)) + 1):
        follow = {
            run[-1]: count for run, count in runs.items() if len(run) == length + 1 and list(run[:-1]) == tail[-length:]
        }
        expected = (length, follow) if follow else expected
    assert tree.after(tail) == expected


def test_what_one_tenant_was_told_is_never_guessed_for_another():
    source = SuffixSource()
    grow(source, [1], sequence_id=1, tenant="a", limit=1)
    source.observe(1, [20, 21, 22, 23])
    source.forget(1)
    assert 22 in grow(source, [9, 20, 21], sequence_id=2, tenant="a").draft().tree.tokens
    for tenant in ("b", ""):
        assert len(grow(source, [9, 20, 21], sequence_id=3, tenant=tenant)) == 1
        source.forget(3)


@given(responses=st.lists(st.tuples(st.sampled_from("abc"), TEXTS), max_size=12))
def test_memory_stays_within_its_bound_and_the_oldest_goes_first(responses):
    memory = Memory(capacity=60)
    for tenant, text in responses:
        memory.add(tenant, text)
        kept = [tuple(one) for responses in memory._tenants.values() for one in responses.texts]
        assert memory.num_tokens == sum(map(len, kept)) <= 60
        assert tuple(text) in kept
    for tenant, remembered in memory._tenants.items():
        texts = [list(text) for text in remembered.texts]
        assert stored(memory.tree(tenant)) == runs_of(texts)
        own = [text for other, text in responses if other == tenant]
        assert texts == own[len(own) - len(texts) :]


def test_suffix_follows_the_likelier_continuation_first():
    source = SuffixSource()
    tree = grow(source, [1, 2, 3, 9, 1, 2, 3, 9, 1, 2, 4, 9, 1, 2], limit=4, width=2)
    assert tree.path(1) == [3]
    assert [4] in [tree.path(node) for node in range(len(tree))]


@pytest.mark.parametrize("source", [NgramSource(), SuffixSource()], ids=lambda source: source.name)
def test_nothing_is_guessed_where_nothing_was_seen(source):
    assert len(grow(source, [1, 2, 3], sequence_id=7)) == 1
    assert suffix_tree.DEPTH > 2
