"""Every head that keeps keys and values, against its plain twin: step by step, in ragged batches, through trees."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from drafters.checkpoints.load import load_head
from drafters.heads.attention import Pass
from drafters.heads.base import CommittedPairs, GuessedPairs
from drafters.heads.cache import ContiguousCache
from drafters.heads.unrolled import UnrolledAttention

MUTATIONS = {
    "eagle": ("shifted features", "wrong positions", "no post_attention_layernorm", "an input norm too many"),
    "eagle-bare": ("shifted features", "wrong positions", "no layers.1.input_layernorm", "an input norm too many"),
    "eagle3": (
        "shifted features",
        "wrong positions",
        "aux layers",
        "no hidden_norm",
        "no input_layernorm",
        "no norm",
        "other residual",
    ),
    "eagle3-late": ("shifted features", "aux layers", "no input_norm", "no fc_norm.1", "no norm", "other residual"),
    "eagle3-same": ("shifted features", "wrong positions", "aux layers", "no hidden_norm", "no norm"),
    "eagle3-tied": ("shifted features", "wrong positions", "no hidden_norm", "no norm", "other residual"),
    "speculators": ("shifted features", "wrong positions", "aux layers", "no hidden_norm", "other residual"),
    "mtp-deepseek": (
        "shifted features",
        "wrong positions",
        "no pre_fc_norm_hidden",
        "no pre_fc_norm_embedding",
        "no norm",
    ),
    "mtp-qwen": ("shifted features", "wrong positions", "no pre_fc_norm_hidden", "no q_norm", "no norm"),
}


@pytest.fixture(scope="session")
def head(head_files, target, tmp_path_factory):
    return load_head(head_files.write(tmp_path_factory.mktemp("head")), target)


def assert_close(actual, expected):
    """Up to the rounding of the product's frequency table, which is float32 as in transformers; mutations pass 1e-3."""
    torch.testing.assert_close(actual, expected, atol=2e-5, rtol=2e-5)


def new_cache(head):
    return ContiguousCache(head.shape, head.num_layers, dtype=torch.float64, device=torch.device("cpu"))


def extend(head, cache, texts, spans):
    """Commit pairs of tokens ``start .. stop`` for some texts in one pass; logits by text."""
    spans = {text: (start, stop) for text, (start, stop) in spans.items() if stop > start}
    features = [texts[s].features(head.features.layer_inputs)[a - 1 : b - 1] for s, (a, b) in spans.items()]
    pairs = CommittedPairs(
        rows=Pass(sequence_ids=tuple(spans), counts=tuple(b - a for a, b in spans.values())),
        tokens_T=torch.tensor([t for s, (a, b) in spans.items() for t in texts[s].tokens[a:b]]),
        positions_T=torch.tensor([p - 1 for a, b in spans.values() for p in range(a, b)]),
        features_TF=torch.cat(features),
    )
    states = head.extend(pairs, cache)
    counts = [b - a for a, b in spans.values()]
    return dict(zip(spans, states.split(counts), strict=True)), dict(
        zip(spans, head.logits(states).split(counts), strict=True)
    )


def test_committed_pairs_equal_the_twin_however_they_are_cut_and_batched(head, head_files, target, plain, text_of):
    twin = plain(head_files, target)
    texts = {id_: text_of(length, id_) for id_, length in ((3, 9), (8, 2), (5, 14))}
    expected = {id_: twin.chain(text, []) for id_, text in texts.items()}

    @given(rounds=st.lists(st.tuples(*[st.integers(0, 5)] * 3), max_size=5))
    @settings(max_examples=10, deadline=None)
    def check(rounds):
        cache, done = new_cache(head), dict.fromkeys(texts, 1)
        for rows in [*rounds, (99, 99, 99)]:
            spans = {
                id_: (done[id_], min(len(text.tokens), done[id_] + count))
                for (id_, text), count in zip(texts.items(), rows, strict=True)
            }
            if any(stop > start for start, stop in spans.values()):
                _, logits = extend(head, cache, texts, spans)
                for id_, logits_TV in logits.items():
                    assert_close(logits_TV, expected[id_][spans[id_][0] - 1 : spans[id_][1] - 1])
            done = {id_: stop for id_, (_, stop) in spans.items()}

    check()


LEVEL = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 69)), min_size=1, max_size=4)
"""Nodes of one level: the parent's number within the level above, and the token."""


def test_trees_of_guesses_equal_the_twin_along_every_path(head, head_files, target, plain, text_of):
    twin = plain(head_files, target)
    texts = {7: text_of(6, 1), 2: text_of(3, 2)}
    cache = new_cache(head)
    states, _ = extend(head, cache, texts, {7: (1, 6), 2: (1, 3)})

    @given(levels=st.lists(st.tuples(LEVEL, st.one_of(st.just([]), LEVEL)), min_size=1, max_size=3))
    @settings(max_examples=8, deadline=None)
    def check(levels):  # each example's tree overwrites the one before, with no commit between
        above = {id_: [(-1, [], states[id_][-1])] for id_ in texts}
        counts = dict.fromkeys(texts, 0)
        for drawn in levels:
            level = {
                id_: [(*above[id_][parent % len(above[id_])], token) for parent, token in nodes]
                for id_, nodes in zip(texts, drawn, strict=True)
                if nodes and above[id_]
            }
            if not level:
                return
            above = grow_level(head, twin, cache, texts, level, counts)

    check()


def grow_level(head, twin, cache, texts, level, counts):
    flat = [(id_, *node) for id_, nodes in level.items() for node in nodes]
    pairs = GuessedPairs(
        rows=Pass(
            sequence_ids=tuple(level),
            counts=tuple(len(nodes) for nodes in level.values()),
            parents=tuple(tuple(number for number, *_ in nodes) for nodes in level.values()),
        ),
        tokens_T=torch.tensor([token for *_, token in flat]),
        positions_T=torch.tensor([len(texts[id_].tokens) - 1 + len(path) for id_, _, path, _, _ in flat]),
        states_TE=torch.stack([state for *_, state, _ in flat]),
    )
    states = head.expand(pairs, cache)
    logits = head.logits(states)
    grown = {id_: [] for id_ in texts}
    for row, (id_, _, path, _, token) in enumerate(flat):
        assert_close(logits[row], twin.chain(texts[id_], [*path, token])[-1])
        grown[id_].append((counts[id_], [*path, token], states[row]))
        counts[id_] += 1
    return grown


def test_every_mutation_of_the_twin_is_noticed(head, head_files, target, plain, text_of):
    text = text_of(7, 4)
    right = plain(head_files, target).chain(text, [5, 6])
    for mutation in MUTATIONS[head_files.kind]:
        wrong = plain(head_files, target, mutation).chain(text, [5, 6])
        assert (wrong - right).abs().max() > 1e-3, mutation


def test_guesses_leave_the_committed_pairs_alone(head, text_of):
    texts, clean, used = {1: text_of(12, 3)}, new_cache(head), new_cache(head)
    _, expected = extend(head, clean, texts, {1: (1, 12)})
    states, first = extend(head, used, texts, {1: (1, 5)})
    pairs = GuessedPairs(
        rows=Pass(sequence_ids=(1,), counts=(2,), parents=((-1, -1),)),
        tokens_T=torch.tensor([3, 4]),
        positions_T=torch.tensor([4, 4]),
        states_TE=states[1][-1:].expand(2, -1),
    )
    head.expand(pairs, used)
    _, second = extend(head, used, texts, {1: (5, 12)})
    assert_close(torch.cat((first[1], second[1])), expected[1])
    used.truncate(1, 3)  # a preemption computes the tail again
    assert used.length(1) == 3
    _, again = extend(head, used, texts, {1: (4, 12)})
    assert_close(again[1], expected[1][3:])
    used.forget(1)
    assert used.length(1) == 0
    assert used.bytes_used == 0


@pytest.mark.parametrize("lengths", [(6, 4), (5, 5)])
def test_unrolled_training_steps_equal_the_twin(lengths, head, head_files, target, plain, text_of):
    twin, texts = plain(head_files, target), [text_of(length, 5 + index) for index, length in enumerate(lengths)]
    attention = UnrolledAttention()
    counts = [len(text.tokens) - 1 for text in texts]
    features = torch.cat([text.features(head.features.layer_inputs)[:-1] for text in texts])
    states = head.fuse(features)
    for step in range(3):
        counts = [len(text.tokens) - 1 - step for text in texts]
        tokens = torch.tensor([token for text in texts for token in text.tokens[1 + step :]])
        positions = torch.tensor([row + step for count in counts for row in range(count)])
        states = head.step(tokens, states, positions, attention.step(counts))
        rows = iter(head.logits(states))
        for text, count in zip(texts, counts, strict=True):
            for row in range(count):
                cut = type(text)(text.tokens[: row + 2], [h[: row + 2] for h in text.hidden], text.final[: row + 2])
                expected = twin.chain(cut, text.tokens[row + 2 : row + 2 + step])[-1]
                assert_close(next(rows), expected)
        # Rows whose next token is unknown drop out.
        states = torch.cat([part[:-1] for part in states.split(counts)])
