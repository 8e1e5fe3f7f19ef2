"""Rejection sampling follows the target's distribution, exactly in closed form and by count over whole sequences."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.distribution import Distribution
from decoding.masks import MaskRow
from decoding.params import SamplingParams
from decoding.pipeline import LogitsPipeline
from decoding.rejection import DRAFTING, Keys, accept_or_reject
from decoding.rows import RowContext
from decoding.tree import DraftTree

LIMIT = 3.5
NO_TOKEN = -1


def dense(distribution: Distribution | None, size: int) -> np.ndarray:
    probabilities = np.zeros(size)
    if distribution is not None:
        probabilities[distribution.ids_C] = distribution.probs_C
    return probabilities


def of(weights) -> Distribution:
    return Distribution.of(np.arange(len(weights)), np.asarray(weights, dtype=float))


def outcome_of_siblings(target, proposal, siblings, size):
    """The distribution of the committed token for these siblings, in closed form, on plain dense vectors."""
    p, q = dense(target, size), dense(proposal, size)
    out, alive = np.zeros(size), 1.0
    for token in siblings:
        accepted = min(1.0, p[token] / q[token])
        out[token] += alive * accepted
        alive *= 1 - accepted
        left = np.maximum(p - q, 0)
        p = left / left.sum() if left.sum() > 0 else p
        q[token] = 0
        q = q / q.sum() if q.sum() > 0 else q
    return out + alive * p


def chance_of_siblings(proposal, siblings, size):
    """The probability of drawing these tokens, one after the other, without replacement."""
    q, chance = dense(proposal, size), 1.0
    for token in siblings:
        chance *= q[token] / q.sum()
        q[token] = 0
    return chance


weights = st.lists(st.integers(0, 6), min_size=4, max_size=4).filter(any)


@given(weights, weights, st.integers(1, 3))
def test_all_siblings_together_give_the_target(p, q, count):
    target, proposal = of(p), of(q)
    drawable = proposal.ids_C.tolist()
    total = np.zeros(4)
    for siblings in itertools.permutations(drawable, min(count, len(drawable))):
        chance = chance_of_siblings(proposal, siblings, 4)
        total += chance * outcome_of_siblings(target, proposal, siblings, 4)
    np.testing.assert_allclose(total, dense(target, 4), atol=1e-12)


@given(weights, weights)
def test_residual_and_without_equal_their_formulas(p, q):
    left = np.maximum(dense(of(p), 4) - dense(of(q), 4), 0)
    residual = of(p).residual(of(q))
    if residual is None:
        assert left.max() < 1e-15
    else:
        np.testing.assert_allclose(dense(residual, 4), left / left.sum(), atol=1e-9)
    rest = dense(of(p), 4)
    rest[2] = 0
    without = of(p).without(2)
    assert (without is None) == (rest.sum() == 0)
    if without is not None:
        np.testing.assert_allclose(dense(without, 4), rest / rest.sum())


P = (0.5, 0.3, 0.2, 0.0, 0.0)
Q = (0.1, 0.2, 0.2, 0.3, 0.2)
LEGAL = 3


def committed(children_of, samples=6000):
    """Frequencies of the first committed token, and of acceptance; ``children_of(key)`` gives (tokens, proposal)."""
    counts, accepted = Counter(), 0
    for sample in range(samples):
        keys = Keys(seed=5, sample_index=sample, position=7)
        tokens, proposal = children_of(keys.at(0, DRAFTING))
        tree = DraftTree(tokens=(9, *tokens), parents=(-1, *(0 for _ in tokens)))
        proposals = {} if proposal is None else {0: proposal}
        walk = accept_or_reject(tree, proposals, [of(P)] * len(tree), keys, no_token=NO_TOKEN)
        counts[walk.tokens[0]] += 1
        accepted += len(walk.nodes) > 1
    return np.array([counts[token] / samples for token in range(5)]), accepted / samples


def variation(frequencies) -> float:
    return float(np.abs(frequencies - np.array(P)).sum() / 2)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("proposal", [of(Q), of(Q[:LEGAL])], ids=["unmasked", "masked"])
def test_the_target_comes_out_of_both_drafts_and_masking_the_draft_accepts_more(proposal, count):
    frequencies, accepted = committed(lambda key: (proposal.draw(key, count), proposal))
    assert variation(frequencies) < 0.02
    if count == 1:
        assert accepted == pytest.approx(0.7 if len(proposal) == LEGAL else 0.5, abs=0.02)


def test_dropping_an_illegal_draft_is_biased():
    """The wrong verifier that is told what the drawn draft was before it decides whether the position is drafted."""
    whole = of(Q)

    def truncated(key):
        (token,) = whole.draw(key)
        return ((token,), whole) if token < LEGAL else ((), None)

    frequencies, _ = committed(truncated)
    assert variation(frequencies) == pytest.approx(0.15, abs=0.02)


def test_a_proposal_that_the_children_were_not_drawn_from_is_biased():
    masked, whole = of(Q[:LEGAL]), of(Q)
    frequencies, _ = committed(lambda key: (masked.draw(key), whole))
    assert variation(frequencies) == pytest.approx(0.30, abs=0.02)


def test_a_chosen_guess_counts_as_a_point_mass():
    frequencies, accepted = committed(lambda _key: ((1, 0), None))
    assert variation(frequencies) < 0.02
    assert accepted == pytest.approx(0.8, abs=0.02)


def test_an_illegal_guess_is_never_committed():
    frequencies, accepted = committed(lambda _key: ((4, 3), None), samples=2000)
    assert frequencies[3] == frequencies[4] == 0
    assert accepted == 0


def test_drawing_without_replacement_follows_its_law(chi_square):
    proposal = of((0.5, 0.3, 0.15, 0.05))
    pairs = Counter(proposal.draw(Keys(seed=1, sample_index=i, position=0).at(0, DRAFTING), 2) for i in range(20_000))
    possible = list(itertools.permutations(range(4), 2))
    expected = [20_000 * chance_of_siblings(proposal, pair, 4) for pair in possible]
    assert chi_square([pairs[pair] for pair in possible], expected) < LIMIT
    assert set(proposal.draw(3, 9)) == {0, 1, 2, 3}


# A Markov chain of three tokens and its drafter, whose trees are drawn level by level.
TRANSITION = np.array([[0.2, 1.0, -0.5], [0.7, -1.0, 0.3], [0.0, 0.4, 1.2]])
DRAFT = np.array([[0.9, 0.0, 0.3], [-0.5, 0.2, 1.0], [0.5, 0.5, -1.0]])
MASKS = {0: None, 1: MaskRow.from_ids([0, 2], 3), 2: None}


def probabilities(table, token, masked=True):
    scaled = np.exp(table[token] / 0.9)
    if masked and token == 1:
        scaled[1] = 0
    return scaled / scaled.sum()


def drawn_tree(text, keys, widths):
    tokens, parents, proposals, level = [text[-1]], [-1], {}, [0]
    for depth, width in enumerate(widths):
        below = []
        for node in level:
            proposals[node] = of(probabilities(DRAFT, tokens[node]))
            for token in proposals[node].draw(keys.at(depth, DRAFTING), width):
                below.append(len(tokens))
                tokens.append(token)
                parents.append(node)
        level = below
    return DraftTree(tokens=tuple(tokens), parents=tuple(parents)), proposals


def rows_of(tree, text, params, sample):
    paths = [tuple(tree.tokens[node] for node in tree.path(node)[1:]) for node in range(len(tree))]
    return [
        RowContext(
            params=params,
            sample_index=sample,
            prompt=text[:1],
            output=(*text[1:], *path),
            mask=MASKS[tree.tokens[node]],
        )
        for node, path in enumerate(paths)
    ]


@pytest.mark.parametrize(("widths", "filters"), [((1, 1, 1), {}), ((2, 1), {"top_k": 2}), ((2, 2, 1), {})], ids=str)
def test_whole_sequences_follow_the_target(chi_square, widths, filters):
    samples, length = 2000, 4
    pipeline = LogitsPipeline(3, ())
    params = SamplingParams(seed=23, temperature=0.9, **filters)
    counts: Counter[tuple[int, ...]] = Counter()
    for sample in range(samples):
        text = [0]
        while len(text) <= length:
            keys = Keys(seed=23, sample_index=sample, position=len(text))
            tree, proposals = drawn_tree(text, keys, widths)
            rows = rows_of(tree, text, params, sample)
            chances = pipeline.chances(torch.from_numpy(TRANSITION[list(tree.tokens)]), rows)
            targets = [chance.distribution for chance in chances]
            walk = accept_or_reject(tree, proposals, targets, keys, no_token=NO_TOKEN)
            text += walk.tokens
        counts[tuple(text[1 : length + 1])] += 1
    exact = {}
    for path in itertools.product(range(3), repeat=length):
        chance = 1.0
        for before, after in itertools.pairwise((0, *path)):
            p = probabilities(TRANSITION, before)
            if filters:
                p[p < np.sort(p)[-2]] = 0
                p /= p.sum()
            chance *= p[after]
        if chance > 0:
            exact[path] = chance
    assert set(counts) <= set(exact)
    frequent = [path for path, chance in exact.items() if chance * samples > 6]
    rest = samples - sum(counts[path] for path in frequent)
    expected = [exact[path] * samples for path in frequent]
    observed = [counts[path] for path in frequent]
    if samples - sum(expected) > 6:
        observed, expected = [*observed, rest], [*expected, samples - sum(expected)]
    assert chi_square(observed, expected) < LIMIT


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 1 << 30),
    st.sampled_from(
        [
            {},
            {"temperature": 0.0},
            {"top_p": 0.6},
            {"min_p": 0.3, "top_k": 5},
            {"temperature": 0.7, "logprobs": 2, "top_p": 0.9},
            {"logprobs": 3},
            {"temperature": 0.0, "logprobs": 3},
        ]
    ),
    st.booleans(),
)
def test_chances_are_what_the_pipeline_draws_from(seed, params, masked):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(1, 400, generator=generator, dtype=torch.float64) * 3
    mask = MaskRow.from_ids(range(0, 390, 7), 390) if masked else None
    row = RowContext(params=SamplingParams(seed=seed, **params), sample_index=0, prompt=(1,), output=(), mask=mask)
    pipeline = LogitsPipeline(390, ())
    (draw,) = pipeline.draw(logits, [row])
    (chances,) = pipeline.chances(logits, [row])
    assert chances.distribution is not None
    assert chances.distribution.of_token(draw.token) > 0
    assert chances.drawn(draw.token) == draw
    if draw.logprobs is not None and params.get("temperature", 1.0):
        assert chances.distribution.of_token(draw.token) == pytest.approx(np.exp(draw.logprobs.token))


def test_a_row_without_a_legal_token_ends_the_walk():
    pipeline = LogitsPipeline(3, ())
    row = RowContext(params=SamplingParams(), sample_index=0, prompt=(1,), output=())
    nothing, sick = pipeline.chances(torch.tensor([[-torch.inf] * 3, [torch.nan, 0.0, 0.0]]), [row, row])
    assert nothing.distribution is None
    assert nothing.nothing is not None
    assert nothing.nothing.error is None
    assert sick.nothing is not None
    assert sick.nothing.error is not None
    keys = Keys(seed=0, sample_index=0, position=0)
    walk = accept_or_reject(DraftTree.chain([4, 2]), {}, [of((0, 0, 1)), None], keys, no_token=NO_TOKEN)
    assert walk.nodes == (0, 1)
    assert walk.tokens == (2, NO_TOKEN)


def test_streams_are_separate():
    keys = Keys(seed=1, sample_index=2, position=3)
    assert len({keys.at(0, b""), keys.at(0, DRAFTING), keys.at(0, b"accept"), keys.at(1, DRAFTING)}) == 4
