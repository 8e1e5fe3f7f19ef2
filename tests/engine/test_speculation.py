"""Speculation changes no token: every drafter, sampling, constraint and company, on a real decoder in float64."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.finish import FinishReason
from decoding.params import SamplingParams
from decoding.tree import DraftTree
from drafters.choice.costs import CostTable
from drafters.protocol import Draft
from drafters.speculation import MODEL_FREE, Speculation
from engine.build import build_engine
from engine.config import EngineConfig
from engine.loading.directory import read_directory
from engine.loading.encoder import TextEncoder
from engine.request import GenerationRequest
from grammars.choices import compile_choices
from grammars.json_schema.compile import JsonOptions, compile_json_schema
from grammars.matching.compile import compile_regex
from grammars.matching.trie import TokenTrie
from grammars.vocabulary import load_vocabulary

NONE = Speculation(drafter="none")
SAMPLINGS = {
    "greedy": {"temperature": 0.0},
    "nucleus": {"temperature": 0.7, "top_p": 0.9},
    "plain": {"temperature": 1.0},
    "penalties": {"temperature": 0.0, "repetition_penalty": 1.4, "presence_penalty": 0.5, "frequency_penalty": 0.5},
    "min_p": {"temperature": 1.0, "min_p": 0.2},
    "bias": {"temperature": 0.5, "logit_bias": {40: 3.0, 41: -4.0}, "bad_words": ((50,), (51, 52))},
    "logprobs": {"temperature": 0.8, "logprobs": 2, "min_tokens": 5},
}
OBJECT = {
    "type": "object",
    "properties": {
        "first_name": {"type": "string", "maxLength": 6},
        "status": {"enum": ["open", "closed", "unknown"]},
        "active": {"type": "boolean"},
    },
    "required": ["first_name", "status", "active"],
    "additionalProperties": False,
}
TREE = {
    "$defs": {"node": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 3}},
    "$ref": "#/$defs/node",
}
PROMPTS = (
    '{"first_name":"Ada","status":"open","active":true}\n{"first_name":"Ada","status":"closed","active":false}\n',
    "the river the river the river the river the",
    "[[],[[]]] [[],[[]]]",
)
DRAFTERS = ("auto", *MODEL_FREE, "forced+ngram", "forced+alternatives+suffix+ngram")


@pytest.fixture(scope="module")
def files(tiny_model_dir):
    return read_directory(tiny_model_dir(), "tiny")


@pytest.fixture(scope="module")
def trie(files):
    return TokenTrie.of(load_vocabulary(files.tokenizer, eos_token_ids=files.eos_token_ids, size=512))


@pytest.fixture(scope="module")
def grammars(trie):
    return {
        "none": None,
        "schema": compile_json_schema(json.dumps(OBJECT), JsonOptions()).bind(trie),
        "regex": compile_regex(r"The (cat|dog) is [0-9]{2} years old, (yes|no|maybe)\.").bind(trie),
        "recursive": compile_json_schema(json.dumps(TREE), JsonOptions()).bind(trie),
    }


@pytest.fixture(scope="module")
def build(files, trie):
    def make(costs=None, **config):
        defaults = {"dtype": "float64", "device": "cpu", "threads": 1, "kv_cache_tokens": 4096}
        loaded = {"drafters": "+".join(MODEL_FREE), "draft_tokens": 6, "tree_width": 3}
        fixed = {"reproducible_drafts": costs is None}
        config = EngineConfig(**(defaults | loaded | fixed | config))
        return build_engine(config, files, vocabulary=trie.vocabulary, costs=costs)

    return make


@pytest.fixture(scope="module")
def engines(build):
    """One engine for each company; the last has room for few, so that sequences are preempted."""
    return {
        "roomy": build(),
        "chunked": build(max_batch_tokens=24, max_running=3, prefix_cache=False),
        "tight": build(kv_cache_tokens=160, watermark=0.0, max_running=4),
        # Chosen by times, which differ from run to run.
        "by cost": build(costs=CostTable({1: 1.0, 8: 1.3, 64: 9.0})),
        "by steep cost": build(costs=CostTable({1: 1.0, 64: 64.0}), max_batch_tokens=24),
    }


@pytest.fixture(scope="module")
def alone(toy, build):
    """Tokens and log-probabilities of a request without speculation and without company."""
    engine = build(drafters="none", prefix_cache=False)
    known: dict = {}

    def get(request, key):
        if key not in known:
            engine.submit(replace(request, speculation=NONE))
            result = toy.run(engine)[request.request_id, 0]
            known[key] = result.tokens, [entry.token for entry in result.logprobs], result.finish.reason
        return known[key]

    return get


def make_request(files, grammars, name, *, prompt, sampling, grammar, seed=0, max_tokens=28, **speculation):
    return GenerationRequest(
        request_id=name,
        prompt=tuple(TextEncoder(files.tokenizer).encode(PROMPTS[prompt])),
        params=SamplingParams(max_tokens=max_tokens, seed=seed, **SAMPLINGS[sampling]),
        grammar=grammars[grammar],
        tenant="t",
        speculation=Speculation(**speculation),
    )


def check_equal(toy, engine, alone, requests):
    """``requests`` by the key that `alone` knows them by."""
    for request in requests.values():
        engine.submit(request)
    results = toy.run(engine)
    for key, request in requests.items():
        result = results[request.request_id, 0]
        tokens, logprobs, reason = alone(request, key)
        assert (result.tokens, result.finish.reason) == (tokens, reason), key
        assert [entry.token for entry in result.logprobs] == pytest.approx(logprobs, abs=1e-9)
        usage = result.finish.usage
        assert usage.accepted + usage.rejected_by_model == usage.drafted
        assert sum(usage.accepted_per_position) == usage.accepted >= usage.forced
    return [results[request.request_id, 0].finish.usage for request in requests.values()]


@pytest.mark.parametrize("grammar", ["none", "schema", "regex", "recursive"])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_every_drafter_says_what_plain_decoding_says(toy, files, grammars, engines, alone, sampling, grammar):
    """One mixed batch of all drafters, which also find each other's prompts and responses."""
    for prompt in range(2):
        requests = {}
        for index, drafter in enumerate(DRAFTERS):
            key = (prompt, sampling, grammar, index % 2)
            request = make_request(
                files, grammars, f"{drafter}-{prompt}", prompt=prompt, sampling=sampling, grammar=grammar,
                seed=index % 2, drafter=drafter, max_draft_tokens=(3, 12)[index % 2],
            )  # fmt: skip
            requests[*key, drafter] = request
        check_equal(toy, engines["roomy"], lambda request, key: alone(request, key[:4]), requests)


@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_neither_company_nor_chunks_cache_or_preemption_change_that(toy, files, grammars, engines, alone, data):
    requests = {}
    for index in range(data.draw(st.integers(1, 4))):
        plain = (
            data.draw(st.integers(0, 2)), data.draw(st.sampled_from(sorted(SAMPLINGS))),
            data.draw(st.sampled_from(["none", "schema", "regex", "recursive"])), data.draw(st.integers(0, 1)),
        )  # fmt: skip
        wishes = {
            "drafter": data.draw(st.sampled_from([*DRAFTERS, "none"])),
            "max_draft_tokens": data.draw(st.sampled_from([None, 0, 1, 5, 20])),
            "tree_width": data.draw(st.sampled_from([None, 1, 5])),
        }
        prompt, sampling, grammar, seed = plain
        requests[*plain, index] = make_request(
            files, grammars, str(index), prompt=prompt, sampling=sampling, grammar=grammar, seed=seed, **wishes
        )
    engine = engines[data.draw(st.sampled_from(sorted(engines)))]
    check_equal(toy, engine, lambda request, key: alone(request, key[:4]), requests)


def test_sequences_are_preempted_half_way_and_guesses_are_accepted(toy, files, grammars, engines, alone):
    before = engines["tight"].stats().totals.preemptions
    requests = {
        (prompt, "greedy", grammar, 0): make_request(
            files, grammars, f"{prompt}{grammar}", prompt=prompt, sampling="greedy", grammar=grammar
        )
        for prompt in range(2)
        for grammar in ("none", "schema")
    }
    usages = check_equal(toy, engines["tight"], alone, requests)
    assert engines["tight"].stats().totals.preemptions > before
    assert sum(usage.accepted for usage in usages) > 5
    assert sum(usage.forced for usage in usages) > 0


@pytest.mark.parametrize("engine", ["by cost", "by steep cost"])
@pytest.mark.parametrize("sampling", ["greedy", "plain", "penalties"])
def test_choosing_by_cost_changes_no_token_while_it_learns(toy, files, grammars, engines, alone, engine, sampling):
    """Batches that grow and shrink, so that budgets and mixes do."""
    for batch in (1, 6, 1):
        requests = {}
        for index in range(batch):
            plain = (index % 2, sampling, ("schema", "none", "regex")[index % 3], index % 2)
            prompt, _, grammar, seed = plain
            requests[*plain, index] = make_request(
                files, grammars, str(index), prompt=prompt, sampling=sampling, grammar=grammar, seed=seed
            )
        check_equal(toy, engines[engine], lambda request, key: alone(request, key[:4]), requests)
    assert engines[engine].stats().choice.acceptance


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_whole_sequences_under_a_grammar_have_their_exact_chances(toy, files, grammars, engines, trie, drafter):
    """Chi-square against the chances that plain decoding reports for each text."""
    grammar = compile_choices(("no", "not", "the", "then", "so so")).bind(trie)
    request = replace(
        make_request(files, grammars, "r", prompt=1, sampling="plain", grammar="none", drafter=drafter), grammar=grammar
    )
    rounds, samples = 6, 100
    counts: Counter = Counter()
    chances: dict = {}
    for seed in range(rounds):
        params = SamplingParams(max_tokens=12, temperature=1.0, seed=seed, logprobs=0)
        engines["roomy"].submit(replace(request, n=samples, params=params))
        for result in toy.run(engines["roomy"]).values():
            counts[tuple(result.tokens)] += 1
            chances[tuple(result.tokens)] = float(np.exp(sum(entry.token for entry in result.logprobs)))
    total = rounds * samples
    common = [text for text in counts if total * chances[text] >= 5]
    rest = 1 - sum(chances[text] for text in common)
    assert -1e-9 <= rest < 0.3
    statistic = sum((counts[text] - total * chances[text]) ** 2 / (total * chances[text]) for text in common)
    seen = total - sum(counts[text] for text in common)
    statistic += (seen - total * rest) ** 2 / (total * rest) if total * rest >= 5 else 0.0
    assert len(common) > 3
    freedom = len(common)
    assert statistic < freedom + 4 * math.sqrt(2 * freedom) + 4  # p < 1e-4, after Wilson and Hilferty


class Oracle:
    """Guesses a whole answer, and more behind its end."""

    def __init__(self, answer):
        self.answer = answer

    def propose(self, contexts):
        return [Draft(tree=DraftTree.chain(self.guess(context))) for context in contexts]

    def guess(self, context):
        return [context.tokens[-1], *self.answer[len(context.tokens) - context.num_prompt :]][: context.limit]

    def observe(self, sequence_id, tokens, accepted):
        assert accepted <= len(tokens)

    def forget(self, sequence_id):
        pass


@pytest.mark.parametrize("case", ["eos", "grammar", "length", "stop", "context"])
def test_an_end_inside_the_window_cuts_the_tail_and_its_keys(toy, case):
    fields = {
        "eos": {"params": {"max_tokens": 40, "logit_bias": {toy.EOS: 3.0}}},
        "grammar": {"params": {"max_tokens": 40, "ignore_eos": True}, "grammar": toy.Grammar(max_tokens=5)},
        "length": {"params": {"max_tokens": 7, "ignore_eos": True}},
        "stop": {"params": {"max_tokens": 40, "ignore_eos": True}},
        "context": {"params": {"max_tokens": 90, "ignore_eos": True}},
    }[case]
    config = {"context_length": 15} if case == "context" else {}
    tried = (toy.request("r", seed, 6, **fields) for seed in range(4, 20))
    request = next(request for request in tried if 4 < len(toy.alone(request, **config)) <= 40)
    if case == "stop":
        free = toy.alone(request)
        request = replace(request, stop=toy.StopAt(free[3], free[4]))
    answer = toy.alone(request, **config)
    reasons = {
        "eos": FinishReason.EOS,
        "grammar": FinishReason.GRAMMAR_END,
        "stop": FinishReason.STOP_STRING,
    }
    engine = toy.engine(drafter=Oracle([*answer, 3, 4, 5, 6, 7, 8]), draft_tokens=20, **config)
    engine.submit(request)
    result = toy.run(engine)["r", 0]
    assert result.tokens == answer
    assert result.finish.reason is reasons.get(case, FinishReason.LENGTH)
    assert engine.stats().totals.steps < len(answer)
    engine.submit(request)
    assert toy.run(engine)["r", 0].tokens == answer, "the cache holds what was not said"


def test_a_request_that_ends_while_guesses_are_under_way_frees_everything(toy, files, grammars, build):
    """A deadline or a caller that leaves reaches the engine as an abort."""
    engine = build()
    request = make_request(files, grammars, "r", prompt=0, sampling="greedy", grammar="schema", drafter="forced+ngram")
    engine.submit(request)
    for _ in range(4):
        engine.step()
    (event,) = engine.abort("r")
    assert event.finish.usage.drafted > 0
    assert engine.stats().blocks.used == 0
    assert not engine.has_work
