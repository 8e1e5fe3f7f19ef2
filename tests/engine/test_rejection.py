"""Both verifiers follow the target's distribution over whole sequences, for every drafter that draws and for mixes.

The target is a Markov chain of eight tokens, so that the chance of every text is known without any verifier, and
thousands of texts cost little. Seeds are fixed: a test that passes once always does.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from decoding.distribution import Distribution
from decoding.finish import FinishReason
from decoding.params import SamplingParams
from decoding.pipeline import LogitsPipeline
from decoding.rejection import accept_or_reject
from decoding.rows import RowContext
from drafters.heads.eagle import EagleHead
from drafters.heads.layers import LayerShape
from drafters.heads.medusa import MedusaHeads
from drafters.heads.mtp import MtpHead
from drafters.heads.rope import Rope
from drafters.heads.target import TargetModel
from drafters.ngram import NgramSource
from drafters.speculation import Speculation
from drafters.suffix import SuffixSource
from drafters.trees.frame import ANYTHING
from drafters.trees.plants import DrawnPlant
from engine.build import assemble
from engine.build_drafters import NeuralDrafters
from engine.config import EngineConfig
from engine.kv_cache import KVShape
from engine.models.base import Hidden
from engine.request import GenerationRequest
from grammars.matching.compile import compile_regex
from grammars.matching.trie import TokenTrie
from grammars.tree_walk import legal_nodes
from grammars.vocabulary import Vocabulary

EOS, V = 1, 8
CPU = torch.device("cpu")
TOKENS = (b"", b"", b"a", b"b", b"c", b"ab", b"d", b"ca")
PROMPT = (2, 3, 4, 2, 3, 4, 2, 3, 4, 2, 3)
LIMIT, WRONG = 4.0, 6.0  # standard scores of a right verifier, and of one that is not
SAMPLES, MANY = 350, 700
LENGTH = 3
"""Tokens of a text that are counted; the first one is drawn without a guess."""


class Markov:
    """Its hidden state is the token, as a one-hot vector; the first layer alone takes it for the next one."""

    architecture, parameters, vocab_size, context_length = "markov", 0, V, 64
    kv_shapes = (KVShape(num_heads=1, head_dim=1),)
    dtype, device = torch.float64, CPU

    def __init__(
        self, seed: int, *, spread: float = 1.2, near: Markov | None = None, favours: tuple[int, ...] = ()
    ) -> None:
        source = torch.Generator().manual_seed(seed)
        self.table = spread * torch.randn(V, V, generator=source, dtype=torch.float64)
        if near is not None:
            self.table += near.table
        self.table[:, list(favours)] += 4.0

    def embed(self, tokens_T):
        return torch.nn.functional.one_hot(tokens_T, V).double()

    def hidden(self, batch, cache, *, taps=()):
        return Hidden(self.embed(batch.tokens_T), tuple(self.embed(batch.tokens_T) for _ in taps))

    def early_hidden(self, batch, cache, *, num_layers):
        return self.embed((batch.tokens_T + 1) % V)

    def logits(self, hidden_RE):
        return hidden_RE @ self.table


TARGET = Markov(1)
MODELS = {
    "model": Markov(2),
    "lopsided": Markov(2, favours=(2, 6)),
    "near": Markov(3, spread=0.3, near=TARGET),
    "self": 1,
}
"""What the drafter "model" draws with: another chain, or the target's first layer."""


@pytest.fixture(autouse=True)
def markov_has_layers(monkeypatch):
    monkeypatch.setattr("engine.build_drafters.LlamaModel", Markov)


@pytest.fixture(scope="module")
def grammar():
    vocabulary = Vocabulary(tokens=TOKENS, special_ids=frozenset((0, EOS)), eos_ids=(EOS,), size=V)
    return compile_regex("[abcd]([abc][bcd])*").bind(TokenTrie.of(vocabulary))


def neural(kind: str) -> NeuralDrafters:
    lent = TargetModel(
        name="markov",
        model_type="markov",
        hidden_size=V,
        vocab_size=V,
        num_layers=1,
        dtype=torch.float64,
        device=CPU,
        embed=TARGET.embed,
        logits=TARGET.logits,
    )
    rope = Rope.from_config({"rope_theta": 10000.0}, hidden_size=V, num_heads=2, head_dim=4)
    shape = LayerShape(
        hidden_size=V, intermediate_size=8, num_heads=2, num_kv_heads=1, head_dim=4, norm_eps=1e-5, activation="silu",
        qkv_bias=False, output_bias=False, mlp_bias=False, qk_norm=False, rope=rope,
    )  # fmt: skip
    torch.manual_seed(3)
    heads = {
        "eagle": lambda: EagleHead(shape, lent, num_layers=1, fc_bias=True, own_embedding=False),
        "mtp": lambda: MtpHead(shape, lent, own_embedding=False, own_output=False),
        "medusa": lambda: MedusaHeads(lent, num_heads=3, num_blocks=1, share_lm_head=True),
    }
    names = kind.split("+")
    return NeuralDrafters(
        heads={name: heads[name]().double() for name in names if name in heads},
        model=next((MODELS[name] for name in names if name in MODELS), None),
        depth=3,
    )


def make_engine(kind: str, verifier: str, **config):
    defaults = {
        "kv_cache_tokens": 8192,
        "max_batch_tokens": 4096,
        "max_running": 512,
        "reproducible_drafts": True,
        "verifier": verifier,
    }
    return assemble(
        EngineConfig(**(defaults | config)),
        TARGET,
        name="markov",
        eos_token_ids=(EOS,),
        sources=[SuffixSource(), NgramSource()],
        neural=neural(kind),
    )


def make_request(kind: str, *, grammar=None, width=2, nodes=7, n=1, max_tokens=6, **params) -> GenerationRequest:
    names = "+".join("model" if name in MODELS else name for name in kind.split("+"))
    return GenerationRequest(
        request_id="r",
        prompt=PROMPT,
        params=SamplingParams(**({"max_tokens": max_tokens, "seed": 11} | params)),
        grammar=grammar,
        n=n,
        speculation=Speculation(drafter=names, max_draft_tokens=nodes, tree_width=width),
    )


def exact(request: GenerationRequest) -> dict[tuple[int, ...], float]:
    """The chance of every beginning of a text, token after token, by the pipeline that plain decoding draws from."""
    pipeline = LogitsPipeline(V, (EOS,))
    chances: dict[tuple[int, ...], float] = {}
    pending = [((), 1.0, request.grammar.matcher() if request.grammar else None)]
    while pending:
        text, chance, matcher = pending.pop()
        whole = text[-1:] == (EOS,) or len(text) == LENGTH
        if whole or (matcher is not None and matcher.only_end()):
            chances[text] = chance
            continue
        mask = None if matcher is None else matcher.mask()
        row = RowContext(params=request.params, sample_index=0, prompt=PROMPT, output=text, mask=mask)
        last = (*PROMPT, *text)[-1]
        (found,) = pipeline.chances(TARGET.table[last : last + 1], [row])
        for token, probability in zip(found.distribution.ids_C, found.distribution.probs_C, strict=True):
            after = None
            if matcher is not None:
                after = matcher.fork()
                after.advance(int(token))
            pending.append(((*text, int(token)), chance * float(probability), after))
    assert sum(chances.values()) == pytest.approx(1)
    return chances


def score(toy, engine, requests, samples=SAMPLES) -> float:
    """Standard score of Pearson's statistic over whole texts (Wilson and Hilferty 1931); rare ones count together.

    ``requests`` ask for the same distribution, and get a share of the samples each.
    """
    for number, request in enumerate(requests):
        engine.submit(replace(request, request_id=str(number), n=samples // len(requests)))
    texts = Counter(tuple(result.tokens[:LENGTH]) for result in toy.run(engine).values())
    samples = texts.total()
    chances = exact(requests[0])
    assert set(texts) <= set(chances), "a text that the target never says"
    common = [text for text, chance in chances.items() if chance * samples > 5]
    observed = [texts[text] for text in common]
    expected = [chances[text] * samples for text in common]
    observed, expected = [*observed, samples - sum(observed)], [*expected, samples - sum(expected)]
    assert expected[-1] > 5
    freedom = len(common)
    assert freedom >= 8
    statistic = sum((seen - wanted) ** 2 / wanted for seen, wanted in zip(observed, expected, strict=True))
    spread = 2 / (9 * freedom)
    return ((statistic / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)


CASES = [
    ("model", {}, False, {}),
    ("model", {"width": 1, "nodes": 3}, True, {"temperature": 0.6}),
    ("model", {"width": 3, "nodes": 12}, True, {"top_k": 3, "frequency_penalty": 0.7}),
    ("near", {}, True, {"min_p": 0.1, "logit_bias": {3: -2.0, 5: 1.0}}),
    ("self", {}, True, {"temperature": 0.8}),
    ("eagle", {}, False, {"temperature": 0.7, "top_p": 0.9}),
    ("eagle", {"width": 3}, True, {}),
    ("mtp", {}, True, {"repetition_penalty": 1.3}),
    ("medusa", {"width": 3}, True, {"temperature": 0.7}),
    ("ngram+suffix", {}, False, {}),
    ("eagle+model+ngram", {"nodes": 12}, True, {}),
    ("medusa+model", {"nodes": 12, "width": 1}, False, {"top_k": 4}),
]


@pytest.mark.parametrize(("kind", "tree", "constrained", "params"), CASES, ids=str)
def test_whole_texts_have_their_exact_chances(toy, grammar, kind, tree, constrained, params):
    engine = make_engine(kind, "rejection")
    request = make_request(kind, grammar=grammar if constrained else None, **tree, **params)
    assert score(toy, engine, [request]) < LIMIT
    drafted = engine.stats().totals.drafted
    assert drafted.accepted > SAMPLES / 8
    assert drafted.rejected > SAMPLES / 4
    assert drafted.rejected_by_grammar == 0


@pytest.mark.parametrize("verifier", ["walk", "rejection"])
@pytest.mark.parametrize("constrained", [False, True])
def test_a_batch_of_all_drafters_has_the_exact_chances_of_each(toy, grammar, constrained, verifier):
    engine = make_engine("eagle+mtp+medusa+model", verifier)
    names = ("eagle", "mtp", "medusa", "model", "ngram", "eagle+medusa+model+suffix", "none")
    requests = [
        make_request(name, grammar=grammar if constrained else None, seed=seed) for seed, name in enumerate(names)
    ]
    assert score(toy, engine, requests) < LIMIT
    assert engine.stats().totals.drafted.accepted > SAMPLES / 8


class Unmasked:
    """A frame that forbids nothing."""

    def __init__(self, *_arguments) -> None:
        pass

    def follow(self, places):
        return [ANYTHING] * len(places)


def test_illegal_guesses_that_were_drawn_stay(toy, grammar, monkeypatch):
    """With the guard that drops them, the same test fails."""
    monkeypatch.setattr("drafters.trees.merging.MatcherFrame", Unmasked)
    request = make_request("lopsided", grammar=grammar)
    assert score(toy, make_engine("lopsided", "rejection"), [request], MANY) < LIMIT
    monkeypatch.setattr("engine.drafting.legal_nodes", lambda matcher, tree, drawn: legal_nodes(matcher, tree))
    assert score(toy, make_engine("lopsided", "rejection"), [request], MANY) > WRONG


def test_a_verifier_that_takes_the_draft_before_its_mask_fails_the_test(toy, grammar, monkeypatch):
    def before_the_mask(proposal: Distribution) -> Distribution:
        illegal = np.setdiff1d(np.arange(V), proposal.ids_C)
        ids = np.concatenate([proposal.ids_C, illegal])
        weights = np.concatenate([0.4 * proposal.probs_C, np.full(len(illegal), 0.6 / max(1, len(illegal)))])
        return Distribution.of(np.sort(ids), weights[np.argsort(ids)])

    def wrong(tree, proposals, *arguments, **options):
        unmasked = {node: before_the_mask(proposal) for node, proposal in proposals.items()}
        return accept_or_reject(tree, unmasked, *arguments, **options)

    monkeypatch.setattr("engine.verifiers.accept_or_reject", wrong)
    assert score(toy, make_engine("model", "rejection"), [make_request("model", grammar=grammar)], MANY) > WRONG


def test_a_tree_that_keeps_the_likelier_of_two_drawn_guesses_fails_the_test(toy, monkeypatch):
    draw = DrawnPlant.draw

    def wrong(self, parent, proposal):
        size = len(self.tokens)
        draw(self, parent, proposal)
        if len(self.tokens) == size + 2:
            best = max(self.tokens[size:], key=proposal.of_token)
            for column in (self.tokens, self.parents, self.depths, self._lengths):
                column.pop()
            self.tokens[size] = best

    monkeypatch.setattr(DrawnPlant, "draw", wrong)
    assert score(toy, make_engine("near", "rejection"), [make_request("near")], MANY) > WRONG


KINDS = ("near", "self", "eagle", "mtp", "medusa", "ngram", "eagle+model+ngram")


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_texts_are_those_of_the_walk(toy, grammar, kind):
    for constrained in (None, grammar):
        request = make_request(kind, grammar=constrained, temperature=0.0, max_tokens=20, logprobs=2)
        outputs = []
        for verifier in ("walk", "rejection"):
            engine = make_engine(kind, verifier)
            engine.submit(request)
            (result,) = toy.run(engine).values()
            outputs.append((result.tokens, result.logprobs, result.finish.reason, result.finish.usage.accepted))
        assert outputs[0] == outputs[1]


def test_texts_depend_on_the_request_alone_and_log_probabilities_are_exact(toy, grammar):
    for constrained in (None, grammar):
        requests = [
            replace(make_request("near", grammar=constrained, seed=seed, logprobs=0, top_k=4), request_id=str(seed))
            for seed in range(30)
        ]
        together = make_engine("near", "rejection")
        for request in requests:
            together.submit(request)
        results = toy.run(together)
        alone = make_engine("near", "rejection", prefix_cache=False)
        chances = exact(requests[0])
        for request in requests:
            result = results[request.request_id, 0]
            alone.submit(request)
            assert toy.run(alone)[request.request_id, 0].tokens == result.tokens
            said = math.exp(sum(entry.token for entry in result.logprobs[:LENGTH]))
            assert said == pytest.approx(chances[tuple(result.tokens[:LENGTH])])
        assert len({tuple(result.tokens) for result in results.values()}) > 5


def test_a_drafter_close_to_the_target_is_accepted_more_often_than_by_the_walk(toy):
    rates = {}
    for verifier in ("walk", "rejection"):
        engine = make_engine("near", verifier)
        engine.submit(make_request("near", n=100, width=1, nodes=3, max_tokens=30, ignore_eos=True))
        toy.run(engine)
        drafted = engine.stats().totals.drafted
        rates[verifier] = drafted.accepted / drafted.trees
    assert rates["rejection"] > 1.5 * rates["walk"]


@pytest.mark.parametrize("kind", ["model", "ngram"])
def test_a_request_without_a_legal_token_ends_as_with_the_walk(toy, grammar, kind):
    ends = []
    for verifier in ("walk", "rejection"):
        engine = make_engine(kind, verifier)
        bad_words = ((2, 2), *((token,) for token in range(3, V)))  # "a" is left, and cannot go on
        engine.submit(make_request(kind, grammar=grammar, min_tokens=5, bad_words=bad_words))
        (result,) = toy.run(engine).values()
        ends.append((result.tokens, result.finish.reason, result.finish.message))
    assert ends[0] == ends[1] == ([2], FinishReason.NO_LEGAL_TOKEN, ends[0][2])
