"""Growing trees: against a twin that expands everything, inside grammars, and for many sequences at once."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.errors import GrammarStateError
from decoding.masks import MaskRow
from decoding.rejection import Keys
from decoding.tree import DraftTree
from drafters.checkpoints.load import load_head
from drafters.heads.attention import Pass
from drafters.heads.base import CommittedPairs
from drafters.heads.cache import ContiguousCache
from drafters.heads.medusa import MedusaHeads
from drafters.protocol import Drawing
from drafters.trees.choosing import DraftVocabulary
from drafters.trees.frame import ANYTHING, NOTHING, Following, MatcherFrame, Place
from drafters.trees.growth import grow
from drafters.trees.logits import MedusaLogits, RecurrentLogits
from drafters.trees.plants import Stem, TreeLimits
from grammars.json_schema.compile import JsonOptions, compile_json_schema
from grammars.matching.trie import TokenTrie
from grammars.tree_walk import legal_nodes
from grammars.vocabulary import Vocabulary

V = 9
END = 0


@dataclass
class Scripted:
    """Logits that are a function of the path alone."""

    seeds: list[int]
    vocabulary: DraftVocabulary
    ties: bool = True
    calls: int = 0
    rows: int = 0

    def __post_init__(self) -> None:
        self.paths = {(seed, 0): () for seed in range(len(self.seeds))}

    def logits(self, seed: int, path: tuple[int, ...]) -> torch.Tensor:
        source = random.Random(repr((self.seeds[seed], path)))
        return torch.tensor(
            [source.choice((0.0, 1.0, 2.0, 4.0)) if self.ties else source.uniform(0, 4) for _ in range(V)],
            dtype=torch.float64,
        )

    reach = None

    def first(self) -> torch.Tensor:
        self.paths = {(seed, 0): () for seed in range(len(self.seeds))}
        return torch.stack([self.logits(seed, ()) for seed in range(len(self.seeds))])

    def deeper(self, leaves) -> torch.Tensor:
        self.calls += 1
        self.rows += len(leaves)
        for leaf in leaves:
            self.paths[leaf.seed, leaf.node] = (*self.paths[leaf.seed, leaf.parent], leaf.token)
            assert len(self.paths[leaf.seed, leaf.node]) == leaf.depth
        asked = [leaf for leaf in leaves if leaf.asked]
        rows = [self.logits(leaf.seed, self.paths[leaf.seed, leaf.node]) for leaf in asked]
        return torch.stack(rows) if rows else torch.empty(0, V)


class ScriptedFrame:
    """Some tokens are illegal after some paths, a text ends after END, and now and then nothing is forbidden."""

    def __init__(self, seeds: list[int]) -> None:
        self.seeds = seeds
        self.calls = 0

    def one(self, place: Place) -> Following:
        if place.path and place.path[-1] == END:
            return NOTHING
        source = random.Random(repr(("frame", self.seeds[place.seed], place.path)))
        if source.random() < 0.3:
            return ANYTHING
        return Following(mask=MaskRow.from_ids(source.sample(range(V), source.randint(1, V)), V))

    def follow(self, places):
        self.calls += 1
        return [self.one(place) for place in places]


def slow_tree(
    scripted: Scripted, frame: ScriptedFrame, seed: int, limits: TreeLimits, stem: Stem
) -> set[tuple[int, ...]]:
    """Paths that are kept when no level is cut short: every node of a level's best is expanded."""
    if limits.depth < 1 or limits.nodes <= len(stem.tree):
        return set()
    tips = [path_of(stem.tree, tip) for tip in stem.tips]
    found: list[tuple[float, tuple[int, ...], int]] = []  # score, path, length below the tip
    for depth in range(12):
        level = sorted((node for node in found if len(node[1]) == depth), key=lambda node: -node[0])[: limits.width]
        level = [node for node in level if node[2] < limits.depth]
        for score, path, length in [(0.0, tip, 0) for tip in tips if len(tip) == depth] + level:
            following = frame.one(Place(seed=seed, path=path))
            if following.ended:
                continue
            logits = scripted.logits(seed, path)
            legal = [t for t in range(V) if following.mask is None or t in following.mask]
            total = math.log(sum(math.exp(logits[t]) for t in legal))
            ranked = sorted(legal, key=lambda t: (-float(logits[t]), t))[: limits.width]
            found += [(score + min(float(logits[t]) - total, 0.0), (*path, t), length + 1) for t in ranked]
    found.sort(key=lambda node: (-round(node[0], 9), len(node[1])))
    return {path for _, path, _ in found[: limits.nodes - len(stem.tree)]}


def path_of(tree: DraftTree, node: int) -> tuple[int, ...]:
    return tuple(tree.tokens[step] for step in tree.path(node)[1:])


def trees_of(*arguments) -> list[DraftTree]:
    return [draft.tree for draft in grow(*arguments)]


LIMITS = st.builds(TreeLimits, nodes=st.integers(1, 14), depth=st.integers(0, 5), width=st.integers(1, 4))


STEMS = st.builds(
    lambda tokens, parents: DraftTree(
        tokens=(5, *tokens[: len(parents)]), parents=(-1, *(parent % (node + 1) for node, parent in enumerate(parents)))
    ),
    st.permutations(range(1, V)),
    st.lists(st.integers(0, 10), max_size=5),
).map(
    lambda tree: Stem(
        tree=tree, tips=tuple(node for node, children in enumerate(tree.children()) if not children and node % 3 != 2)
    )
)
"""Trees of different tokens, growth at some of whose leaves is asked for."""


@given(
    seeds=st.lists(st.integers(0, 10_000), min_size=1, max_size=4),
    limits=st.lists(LIMITS, min_size=4, max_size=4),
    stems=st.lists(st.one_of(st.just(Stem.bare(5)), STEMS), min_size=4, max_size=4),
)
@settings(max_examples=150, deadline=None)
def test_trees_equal_those_of_the_twin_that_prunes_nothing(seeds, limits, stems):
    limits, stems = limits[: len(seeds)], stems[: len(seeds)]
    # Without ties: which of two equals is expanded decides what hangs below.
    scripted, frame = Scripted(seeds, DraftVocabulary(V, None), ties=False), ScriptedFrame(seeds)
    trees = trees_of(scripted, stems, limits, frame)
    assert frame.calls <= 6 + max(limit.depth for limit in limits)  # one per level, for all sequences
    for seed, (tree, limit, stem) in enumerate(zip(trees, limits, stems, strict=True)):
        size = len(stem.tree)
        assert (tree.tokens[:size], tree.parents[:size]) == (stem.tree.tokens, stem.tree.parents)
        new = [path_of(tree, node) for node in range(size, len(tree))]
        assert len(set(new)) == len(new)
        assert set(new) == slow_tree(scripted, frame, seed, limit, stem)


@given(seeds=st.lists(st.integers(0, 10_000), min_size=2, max_size=4), limit=LIMITS, stem=STEMS)
@settings(max_examples=50, deadline=None)
def test_alone_equals_batched(seeds, limit, stem):
    together = grow(
        Scripted(seeds, DraftVocabulary(V, None)), [stem] * len(seeds), [limit] * len(seeds), ScriptedFrame(seeds)
    )
    for seed, tree in zip(seeds, together, strict=True):
        assert grow(Scripted([seed], DraftVocabulary(V, None)), [stem], [limit], ScriptedFrame([seed])) == [tree]


def test_a_tree_of_one_node_computes_nothing():
    scripted, frame = Scripted([1], DraftVocabulary(V, None)), ScriptedFrame([1])
    for nodes, depth, width in ((1, 3, 3), (5, 0, 3), (5, 3, 0)):
        assert (
            len(grow(scripted, [Stem.bare(4)], [TreeLimits(nodes=nodes, depth=depth, width=width)], frame)[0].tree) == 1
        )
    assert scripted.rows == frame.calls == 0


def test_what_cannot_be_kept_is_not_expanded():
    scripted = Scripted([3], DraftVocabulary(V, None))
    grow(scripted, [Stem.bare(4)], [TreeLimits(nodes=2, depth=5, width=4)], ScriptedFrame([3]))
    assert scripted.rows <= 1 * 5


@given(
    seeds=st.lists(st.integers(0, 10_000), min_size=1, max_size=3),
    limit=LIMITS,
    stem=st.one_of(st.just(Stem.bare(5)), STEMS),
    temperature=st.sampled_from([0.3, 1.0]),
)
@settings(max_examples=60, deadline=None)
def test_drawn_children_are_those_that_the_masked_distribution_draws(seeds, limit, stem, temperature):
    """All of them, in their order, beside trees of the likeliest guesses in the same batch."""
    scripted, frame = Scripted(seeds, DraftVocabulary(V, None)), ScriptedFrame(seeds)
    keys = Keys(seed=3, sample_index=1, position=40)
    drawn = replace(stem, drawing=Drawing(temperature=temperature, keys=keys))
    stems = [drawn, *[stem] * (len(seeds) - 1)]
    drafts = grow(scripted, stems, [limit] * len(seeds), frame, stream=b"x")
    draft, size = drafts[0], len(stem.tree)
    assert len(draft.tree) <= max(limit.nodes, size)
    children, depths = draft.tree.children(), draft.tree.depths()
    grown = set()
    for node, proposal in draft.proposals.items():
        path = path_of(draft.tree, node)
        mask = frame.one(Place(seed=0, path=path)).mask
        logits = scripted.logits(0, path).numpy() / temperature
        legal = [token for token in range(V) if mask is None or token in mask]
        weights = np.exp(logits[legal])
        assert proposal.ids_C.tolist() == legal
        np.testing.assert_allclose(proposal.probs_C, weights / weights.sum())
        tokens = [draft.tree.tokens[child] for child in children[node]]
        assert tuple(tokens) == proposal.draw(keys.at(depths[node], b"x"), len(tokens))
        assert 1 <= len(tokens) <= limit.width
        grown.update(children[node])
    assert grown == set(range(size, len(draft.tree)))
    alone = [grow(Scripted([seed], DraftVocabulary(V, None)), [one], [limit], ScriptedFrame([seed]), stream=b"x")[0]
             for seed, one in zip(seeds, stems, strict=True)]  # fmt: skip
    assert [other.tree for other in drafts] == [other.tree for other in alone]


@pytest.mark.parametrize(
    ("nodes", "width", "sizes"),
    [(9, 2, (2, 3, 1, 1, 1)), (4, 2, (1, 1, 1)), (41, 3, (3, 9, 9, 9, 9)), (6, 1, (1,) * 5)],
)
def test_a_drawn_tree_is_wide_above_and_deep_whatever_is_drawn(nodes, width, sizes):
    for seed in range(5):
        drawing = Drawing(temperature=1.0, keys=Keys(seed=seed, sample_index=0, position=1))
        limits = TreeLimits(nodes=nodes, depth=5, width=width)
        scripted = Scripted([seed], DraftVocabulary(V, None))
        (tree,) = trees_of(scripted, [Stem.bare(5, drawing)], [limits], MatcherFrame([None], ()))
        assert tuple(Counter(tree.depths())[depth] for depth in range(1, len(sizes) + 1)) == sizes
        assert scripted.rows <= width * 4


@pytest.fixture(scope="module")
def grammar():
    pieces = [bytes((byte,)) for byte in b'{}[]":,.- abcdefnrstu\\0123456789eE'] + [
        b'{"',
        b'":',
        b'"a":',
        b"true",
        b"12",
    ]
    assert len(pieces) < 69
    size = len(pieces)
    vocabulary = Vocabulary(tokens=(*pieces, b""), special_ids=frozenset((size,)), eos_ids=(size,), size=70)
    schema = {
        "type": "object",
        "properties": {"a": {"enum": [True, 12, 120]}, "b": {"type": "array", "items": {"type": "integer"}}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    return compile_json_schema(schema, JsonOptions()).bind(TokenTrie.of(vocabulary))


@pytest.mark.parametrize("kind", ["eagle", "eagle3", "mtp-qwen", "medusa"])
def test_heads_grow_nothing_that_the_grammar_rejects(kind, files, target, text_of, grammar, tmp_path):
    """Random heads along random legal texts."""
    source = random.Random(5)
    matchers, texts = [], []
    for length in (0, 3, 9, 14):
        matcher, text = grammar.matcher(), text_of(4, length)
        for _ in range(length):
            row = matcher.mask()
            token = source.choice([token for token in range(target.vocab_size) if token in row])
            if matcher.is_accepting:
                break
            matcher.advance(token)
        matchers.append(matcher)
        texts.append(text)
    stems = [Stem.bare(text.tokens[-1]) for text in texts]
    limits = [TreeLimits(nodes=12, depth=3, width=4)] * len(texts)
    frame = MatcherFrame(matchers, ())
    if kind == "medusa":
        with torch.random.fork_rng():
            torch.manual_seed(3)
            heads = MedusaHeads(target, num_heads=3, num_blocks=1, share_lm_head=True).double()
        with torch.inference_mode():
            hidden = torch.stack([text.final[-2] for text in texts])
            guesser = MedusaLogits(heads, DraftVocabulary(target.vocab_size, None), hidden)
            trees = trees_of(guesser, stems, limits, frame)
    else:
        head = load_head(files(kind).write(tmp_path), target)
        guesser, _ = committed(head, target, texts)
        trees = trees_of(guesser, stems, limits, frame)
    grown = 0
    for matcher, tree in zip(matchers, trees, strict=True):
        before = matcher.fork()
        assert list(legal_nodes(matcher, tree)) == list(range(len(tree)))  # rejected by grammar: 0
        assert matcher.mask() is before.mask()
        grown += len(tree) - 1
    assert grown >= 4


def committed(head, target, texts):
    cache = ContiguousCache(head.shape, head.num_layers, dtype=torch.float64, device=torch.device("cpu"))
    counts = tuple(len(text.tokens) - 1 for text in texts)
    pairs = CommittedPairs(
        rows=Pass(sequence_ids=tuple(range(len(texts))), counts=counts),
        tokens_T=torch.tensor([token for text in texts for token in text.tokens[1:]]),
        positions_T=torch.tensor([position for count in counts for position in range(count)]),
        features_TF=torch.cat([text.features(head.features.layer_inputs)[:-1] for text in texts]),
    )
    states = head.extend(pairs, cache)
    guesser = RecurrentLogits(
        head,
        cache,
        DraftVocabulary(target.vocab_size, head.target_ids),
        sequence_ids=range(len(texts)),
        states_SE=torch.stack([part[-1] for part in states.split(counts)]),
        positions=counts,
    )
    return guesser, cache


class PlainFrame:
    def follow(self, places):
        return [ANYTHING] * len(places)


@pytest.mark.parametrize("kind", ["eagle", "eagle3-late", "speculators", "mtp-deepseek"])
def test_grown_trees_follow_the_logits_of_the_twin(kind, files, target, plain, text_of, tmp_path):
    """The plain head, asked for each path alone, finds the same children as likely."""
    published, width = files(kind), 3
    texts = [text_of(5, 11), text_of(3, 12)]
    head = load_head(published.write(tmp_path), target)
    twin = plain(published, target)
    guesser, cache = committed(head, target, texts)
    ids = list(range(target.vocab_size)) if head.target_ids is None else head.target_ids.tolist()
    limits = [TreeLimits(nodes=9, depth=3, width=width)] * 2
    trees = trees_of(guesser, [Stem.bare(text.tokens[-1]) for text in texts], limits, PlainFrame())
    for index, (text, tree) in enumerate(zip(texts, trees, strict=True)):
        assert len(tree) == 9
        for path in (path_of(tree, node) for node in range(1, len(tree))):
            logits = twin.chain(text, list(path[:-1]))[-1]
            best = {ids[draft] for draft in torch.topk(logits, width).indices.tolist()}
            assert path[-1] in best
        assert cache.length(index) == len(text.tokens) - 1


def test_the_frame_of_matchers_equals_fresh_ones_and_leaves_them_alone(grammar):
    source = random.Random(2)
    matcher = grammar.matcher()
    paths = [()]
    for _ in range(40):
        path = source.choice(paths)
        walked = grammar.matcher()
        for token in path:
            walked.advance(token)
        if not walked.is_finished:
            row = walked.mask()
            paths.append((*path, source.choice([token for token in range(70) if token in row])))
    source.shuffle(paths)
    frame = MatcherFrame([None, matcher], {END})
    answers = frame.follow([Place(seed=1, path=path) for path in paths])
    for path, answer in zip(paths, answers, strict=True):
        fresh = grammar.matcher()
        for token in path:
            fresh.advance(token)
        assert answer.ended == fresh.is_finished
        assert answer.ended or (answer.mask.bits_W == fresh.mask().bits_W).all()
    assert (matcher.mask().bits_W == grammar.matcher().mask().bits_W).all()
    free = frame.follow([Place(seed=0, path=()), Place(seed=0, path=(END, 3)), Place(seed=0, path=(3, END))])
    assert free == [ANYTHING, ANYTHING, NOTHING]


def test_a_matcher_out_of_bounds_ends_its_own_tree_only():
    class Exhausted:
        is_finished = False

        def fork(self):
            return self

        def mask(self):
            raise GrammarStateError("out of bounds")

        def rollback(self, count):
            assert count == 0

    seeds = [1, 2]
    frame = MatcherFrame([Exhausted(), None], ())
    trees = trees_of(
        Scripted(seeds, DraftVocabulary(V, None)),
        [Stem.bare(0)] * 2,
        [TreeLimits(nodes=5, depth=3, width=2)] * 2,
        frame,
    )
    assert [len(tree) for tree in trees] == [1, 5]
