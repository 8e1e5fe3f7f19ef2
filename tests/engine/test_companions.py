"""Drafters with a model in the engine: what they guess never shows in a text, and what they keep is always right.

The twin of a drafter's state is computed from nothing for every proposal: the target over all known tokens, the head
over all pairs in a cache of its own. Whatever happened to the sequence (chunks, prefix hits, preemption, forks, blocks
copied on write), what the drafter proposes equals what it proposes from there.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from decoding.errors import InvalidRequestError, ModelLoadError, PreconditionError
from decoding.params import SamplingParams
from drafters.checkpoints.eagle import write_eagle
from drafters.checkpoints.eagle3 import Eagle3Head
from drafters.checkpoints.eagle3_writing import write_eagle3
from drafters.checkpoints.medusa import write_medusa
from drafters.checkpoints.mtp import write_mtp
from drafters.companion import Computed
from drafters.growing import GrowingTree
from drafters.heads.eagle import EagleHead
from drafters.heads.eagle3 import Eagle3Options
from drafters.heads.layers import LayerShape
from drafters.heads.medusa import MedusaHeads
from drafters.heads.mtp import MtpHead
from drafters.heads.rope import Rope
from drafters.heads.target import FeatureSpec
from drafters.medusa import MedusaSource
from drafters.model import ModelSource
from drafters.recurrent import RecurrentSource
from drafters.speculation import Speculation
from engine.build import build_engine
from engine.build_drafters import _as_target, load_neural
from engine.companions import Companions, StepStates
from engine.config import EngineConfig
from engine.kv_cache import BLOCK_SIZE, KVCache
from engine.loading.files import ModelFiles
from engine.loading.weights import load_model
from engine.pack import slots_of
from engine.request import GenerationRequest
from grammars.json_schema.compile import JsonOptions, compile_json_schema
from grammars.matching.trie import TokenTrie
from grammars.vocabulary import load_vocabulary
from tests.paged import PagedText, Part, forward_input

SCHEMA = '{"properties": {"id": {"type": "integer"}, "on": {"type": "boolean"}}, "required": ["id", "on"]}'
KINDS = ("eagle3", "eagle", "mtp", "medusa", "model", "self")
LAYERS = 3


@pytest.fixture(scope="module")
def files(tiny_model_dir) -> ModelFiles:
    return model_files(tiny_model_dir(num_hidden_layers=LAYERS))


def model_files(directory) -> ModelFiles:
    return ModelFiles(
        name="tiny",
        directory=directory,
        tokenizer=directory / "tokenizer.json",
        chat_template=None,
        eos_token_ids=(0, 2),
        bos_token_id=1,
    )


@pytest.fixture(scope="module")
def trie(files) -> TokenTrie:
    vocabulary = load_vocabulary(files.tokenizer, eos_token_ids=files.eos_token_ids, size=520)
    return TokenTrie.of(replace(vocabulary, size=vocabulary.num_tokens))


@pytest.fixture(scope="module")
def grammar(trie):
    return compile_json_schema(SCHEMA, JsonOptions()).bind(trie)


def shape(width: int) -> LayerShape:
    rope = Rope.from_config({"rope_theta": 10000.0}, hidden_size=width, num_heads=4, head_dim=8)
    return LayerShape(
        hidden_size=width,
        intermediate_size=48,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        norm_eps=1e-5,
        activation="silu",
        qkv_bias=False,
        output_bias=False,
        mlp_bias=False,
        qk_norm=False,
        rope=rope,
    )


@pytest.fixture(scope="module")
def flags(files, tiny_model_dir, tmp_path_factory):
    """By kind, what loads the drafter."""
    model = load_model(files, dtype=torch.float64, device=torch.device("cpu"))
    target = _as_target(files, model)
    root = tmp_path_factory.mktemp("heads")
    torch.manual_seed(4)
    kept = torch.arange(0, 520, 2)
    options = Eagle3Options(draft_vocab_size=len(kept), own_embedding=False)
    eagle3 = Eagle3Head(
        shape(40), target, FeatureSpec(layer_inputs=(0, 1, 2)), replace(options, own_embedding=True), kept
    )
    write_eagle3(root / "eagle3", eagle3, target)
    write_eagle(root / "eagle", EagleHead(shape(64), target, num_layers=1, fc_bias=True, own_embedding=False), target)
    write_mtp(root / "mtp", MtpHead(shape(64), target, own_embedding=False, own_output=False), target)
    write_medusa(root / "medusa", MedusaHeads(target, num_heads=3, num_blocks=1, share_lm_head=True), target)
    heads = {kind: {"draft_heads": str(root / kind)} for kind in ("eagle3", "eagle", "mtp", "medusa")}
    smaller = tiny_model_dir(seed=9, num_hidden_layers=1, hidden_size=32, num_attention_heads=2)
    return {**heads, "model": {"draft_model": str(smaller)}, "self": {"draft_model": "self:1"}}


def build(files, **config):
    defaults = {
        "reproducible_drafts": True,
        "dtype": "float64",
        "device": "cpu",
        "kv_cache_tokens": 2048,
        "drafters": "forced+ngram",
    }
    return build_engine(EngineConfig(**(defaults | config)), files)


def name_of(kind: str) -> str:
    return {"eagle3": "eagle", "self": "model"}.get(kind, kind)


SETTINGS = (
    {"temperature": 0.0},
    {"temperature": 1.0, "seed": 3},
    {"temperature": 0.7, "top_p": 0.9, "seed": 5, "frequency_penalty": 0.5, "logprobs": 2},
)


def requests(grammar, drafter: str, *, width: int = 2, n: int = 1) -> list[GenerationRequest]:
    prompts = [tuple(3 + (5 * index + 11 * number) % 400 for index in range(20 + 13 * number)) for number in range(2)]
    return [
        GenerationRequest(
            request_id=f"{number}-{index}-{constrained}",
            prompt=prompt,
            params=SamplingParams(max_tokens=14, ignore_eos=not constrained, **setting),
            grammar=grammar if constrained else None,
            n=n,
            speculation=Speculation(drafter=drafter, max_draft_tokens=7, tree_width=width),
        )
        for number, prompt in enumerate(prompts)
        for index, setting in enumerate(SETTINGS)
        for constrained in (False, True)
    ]


def outputs(toy, engine, batch) -> dict:
    for request in batch:
        engine.submit(request)
    results = toy.run(engine)
    engine._scheduler.pool.check()
    return {key: (result.tokens, [round(p.token, 9) for p in result.logprobs]) for key, result in results.items()}


@pytest.fixture(scope="module")
def plain(toy, files, grammar):
    return outputs(toy, build(files), requests(grammar, "none", n=2))


ROOMY: dict[str, object] = {}
TIGHT = {"max_batch_tokens": 24, "kv_cache_tokens": 160, "max_running": 12, "watermark": 0.0}
"""Prompts in chunks, and preemption."""


def state_of(source, sequence_id, blocks):
    """What a source has made of a sequence's known tokens: its newest state, or all its keys in the last layer."""
    if isinstance(source, MedusaSource):
        return source._hidden[sequence_id][1]
    if isinstance(source, RecurrentSource):
        return source._tracks[sequence_id].state_E
    if sequence_id not in source._tracks:  # the target's own layers, whose keys are the target's
        return torch.zeros(0)
    slots = slots_of(blocks, np.arange(source._tracks[sequence_id].valid))
    return source._model._cache.keys[-1].flatten(0, 1)[torch.from_numpy(slots)]


class Twin:
    """Checks every third proposal of a source against one that is made from nothing."""

    def __init__(self, source, files, config) -> None:
        self.source = source
        self.grow = source.grow
        self.model = load_model(files, dtype=torch.float64, device=torch.device("cpu"))
        self.neural = load_neural(config, files, self.model)
        self.checked = self.calls = 0
        source.grow = self.check

    def check(self, trees) -> None:
        self.calls += 1
        if self.calls % 3:
            self.grow(trees)
            return
        first_turn = [tree for tree in trees if not tree.has_guess_of(self.source.name)]
        wanted = [self.fresh(tree) for tree in first_turn]
        self.grow(trees)
        for tree, (fresh, state) in zip(first_turn, wanted, strict=True):
            assert fresh == tree.draft().tree
            # Close, for which tokens are likeliest hides small errors.
            own = state_of(self.source, tree.context.sequence_id, tree.context.blocks)
            if isinstance(self.source, ModelSource):  # where nothing could be guessed, the fresh one computed less
                own = own[: len(state)]
            torch.testing.assert_close(own, state, atol=1e-9, rtol=1e-9)
            self.checked += 1

    @torch.inference_mode()
    def fresh(self, tree: GrowingTree):
        context = tree.context
        known = list(context.tokens)
        blocks = list(range(-(-(len(known) + context.limit) // BLOCK_SIZE)))
        cache = KVCache(self.model.kv_shapes, len(blocks), torch.float64, self.model.device)
        (source,) = self.neural.sources(self.model, cache, vocab_size=512, eos_token_ids=(0, 2))
        companions = Companions([source])
        text = PagedText()
        text.table.extend(blocks)
        batch = forward_input([Part(text, known[:-1])], self.model.device)
        hidden = self.model.hidden(batch, cache, taps=companions.taps)
        computed = Computed(sequence_id=0, tokens=known, blocks=blocks, first=0, rows=list(range(len(known) - 1)))
        source.follow([computed], StepStates(hidden, companions.taps))
        twin = GrowingTree(
            replace(context, sequence_id=0, blocks=blocks), mix=tree.mix, limit=tree.limit, width=tree.width
        )
        nodes = [0]
        draft = tree.draft()
        for token, parent, origin in list(zip(draft.tree.tokens, draft.tree.parents, draft.sources, strict=True))[1:]:
            nodes.append(twin.extend(nodes[parent], [token], origin))
        tree_asked, twin._asked = tree._asked, set(tree._asked)
        source.grow([twin])
        assert tree._asked is tree_asked
        return twin.draft().tree, state_of(source, 0, blocks)


@pytest.mark.parametrize(("kind", "stress"), [*((kind, TIGHT) for kind in KINDS), ("eagle3", ROOMY), ("model", ROOMY)])
def test_texts_are_those_without_drafts_and_proposals_those_of_a_fresh_state(
    toy, files, flags, grammar, plain, caplog, kind, stress
):
    config = EngineConfig(dtype="float64", device="cpu", **flags[kind])
    engine = build(files, **flags[kind], **stress)
    (source,) = engine._companions._companions
    twin = Twin(source, files, config)
    batch = requests(grammar, f"forced+{name_of(kind)}", n=2)
    for _ in range(2):  # the second time hits the prefix cache
        results = outputs(toy, engine, batch)
        assert results == {key: plain[key] for key in results}
    totals = engine.stats().totals
    assert "failed" not in caplog.text  # the engine swallows what a drafter raises, the twin's checks included
    assert twin.checked > 20
    assert totals.drafted.offered > 0
    assert totals.prefix_hit_tokens > 0
    if stress is TIGHT:
        assert totals.preemptions > 0
    assert not getattr(source, "_tracks", None)
    assert not getattr(source, "_hidden", None)


def test_a_perfect_draft_model_is_always_accepted(toy, files, grammar):
    engine = build(files, draft_model=str(files.directory))
    batch = [
        replace(request, speculation=Speculation(drafter="model", max_draft_tokens=4, tree_width=1))
        for request in requests(grammar, "model", width=1)
        if request.params.temperature == 0
    ]
    results = outputs(toy, engine, batch)
    assert all(tokens for tokens, _ in results.values())
    drafted = engine.stats().totals.drafted
    assert drafted.accepted == drafted.offered > 0
    assert drafted.rejected_by_grammar == 0


def test_drafts_of_heads_never_die_on_the_grammar(toy, files, flags, grammar):
    for kind in ("eagle3", "medusa", "self"):
        engine = build(files, **flags[kind])
        outputs(toy, engine, requests(grammar, name_of(kind)))
        assert engine.stats().totals.drafted.rejected_by_grammar == 0


def test_a_companion_that_fails_costs_guesses_only(toy, files, flags, grammar, plain, caplog):
    engine = build(files, **flags["eagle3"])
    (source,) = engine._companions._companions

    def fail(*_arguments) -> None:
        raise RuntimeError("broken")

    source._keep_boundaries = fail
    results = outputs(toy, engine, requests(grammar, "eagle"))
    assert results == {key: plain[key] for key in results}
    assert "failed to follow" in caplog.text
    assert engine.stats().totals.drafted.offered == 0


def test_what_cannot_be_loaded_names_the_mend(files, flags, tiny_model_dir, tmp_path):
    other = load_model(files, dtype=torch.float64, device=torch.device("cpu"))
    for config, message in (
        ({"draft_model": "self:3"}, r"outside \[self:1, self:2\]"),
        ({"draft_model": "self:0"}, r"outside \[self:1, self:2\]"),
        ({"draft_heads": f"{flags['eagle3']['draft_heads']},{flags['eagle']['draft_heads']}"}, "second head"),
        ({"draft_heads": str(tmp_path)}, "no head|holds no"),
        ({"draft_model": str(tmp_path / "nothing")}, "there is no model"),
    ):
        with pytest.raises(ModelLoadError, match=message):
            load_neural(EngineConfig(**config), files, other)
    gemma = tiny_model_dir(model_type="gemma3_text", query_pre_attn_scalar=16, hidden_activation="gelu_pytorch_tanh")
    routed = load_model(model_files(gemma), dtype=torch.float32, device=torch.device("cpu"))
    with pytest.raises(ModelLoadError, match="self:N"):
        load_neural(EngineConfig(draft_model="self:1"), model_files(gemma), routed)


def test_requests_that_name_what_is_not_there(files, flags):
    engine = build(files, **flags["self"])
    request = GenerationRequest(request_id="r", prompt=(5, 6), params=SamplingParams(max_tokens=2))
    with pytest.raises(PreconditionError, match="--draft-heads"):
        engine.submit(replace(request, speculation=Speculation(drafter="eagle")))
    with pytest.raises(InvalidRequestError, match="no drafter"):
        engine.submit(replace(request, speculation=Speculation(drafter="eagles")))
    assert isinstance(engine._companions._companions[0], ModelSource)
    assert "model" in engine.card.offer.loaded
