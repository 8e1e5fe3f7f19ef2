"""Heads learn: a minute or less on a tiny repetitive target, and nine of ten guesses are accepted."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
import torch
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

from decoding.verify import walk
from drafters.heads.attention import Pass
from drafters.heads.base import CommittedPairs
from drafters.heads.cache import ContiguousCache
from drafters.heads.eagle import EagleHead
from drafters.heads.eagle3 import Eagle3Head, Eagle3Options
from drafters.heads.layers import LayerShape
from drafters.heads.medusa import MedusaHeads
from drafters.heads.mtp import MtpHead
from drafters.heads.rope import Rope
from drafters.heads.target import FeatureSpec, TargetModel
from drafters.heads.unrolled import UnrolledAttention
from drafters.trees.choosing import DraftVocabulary
from drafters.trees.frame import MatcherFrame
from drafters.trees.growth import grow
from drafters.trees.logits import MedusaLogits, RecurrentLogits
from drafters.trees.plants import Stem, TreeLimits

WIDTH, VOCAB, DRAFTED = 32, 24, 20
SENTENCES = ((3, 4, 5, 6, 7, 8, 9), (10, 4, 11, 6, 12, 13, 14), (15, 16, 17, 18, 19, 5))
UNROLLED = 3


def corpus(source: random.Random, count: int, length: int) -> torch.Tensor:
    """Texts that repeat one sentence each, from somewhere in it."""
    rows = []
    for _ in range(count):
        sentence = source.choice(SENTENCES)
        start = source.randrange(len(sentence))
        rows.append([sentence[(start + index) % len(sentence)] for index in range(length)])
    return torch.tensor(rows)


@dataclass
class Repetitive:
    """A language model that has learned the sentences, and what heads see of it."""

    model: LlamaForCausalLM
    target: TargetModel

    @torch.no_grad()
    def read(self, texts: torch.Tensor, features: FeatureSpec) -> tuple[torch.Tensor, torch.Tensor]:
        """Features [S, n, F] and logits [S, n, V]."""
        out = self.model(texts, output_hidden_states=True)
        inputs = [out.hidden_states[layer] for layer in features.layer_inputs]
        return torch.cat(inputs, dim=-1) if inputs else out.hidden_states[-1], out.logits


@pytest.fixture(scope="module")
def repetitive() -> Repetitive:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=WIDTH,
        intermediate_size=64,
        num_hidden_layers=4,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    model, source = LlamaForCausalLM(config), random.Random(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(150):
        texts = corpus(source, 12, 32)
        loss = functional.cross_entropy(model(texts[:, :-1]).logits.flatten(0, 1), texts[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.requires_grad_(requires_grad=False)
    target = TargetModel(
        name="repetitive",
        model_type="llama",
        hidden_size=WIDTH,
        vocab_size=VOCAB,
        num_layers=4,
        dtype=torch.float32,
        device=torch.device("cpu"),
        embed=model.get_input_embeddings(),
        logits=model.lm_head,
    )
    return Repetitive(model=model, target=target)


def new_head(kind: str, target: TargetModel):
    rope = Rope.from_config({"rope_theta": 10000.0}, hidden_size=WIDTH, num_heads=2, head_dim=16)
    shape = LayerShape(
        hidden_size=WIDTH,
        intermediate_size=64,
        num_heads=2,
        num_kv_heads=1,
        head_dim=16,
        norm_eps=1e-6,
        activation="silu",
        qkv_bias=False,
        output_bias=False,
        mlp_bias=False,
        qk_norm=False,
        rope=rope,
    )
    if kind == "eagle":
        return EagleHead(shape, target, num_layers=1, fc_bias=True, own_embedding=False)
    if kind == "mtp":
        return MtpHead(shape, target, own_embedding=False, own_output=False)
    options = Eagle3Options(draft_vocab_size=DRAFTED, own_embedding=False)
    return Eagle3Head(shape, target, FeatureSpec(layer_inputs=(1, 2, 3)), options, torch.arange(DRAFTED))


def train(head, repetitive: Repetitive, steps: int) -> None:
    """EAGLE-3's training-time test: cross-entropy against the target's softmax over the draft vocabulary."""
    source = random.Random(2)
    optimizer = torch.optim.AdamW(head.parameters(), lr=4e-3)
    for _ in range(steps):
        texts = corpus(source, 8, 20)
        features, logits = repetitive.read(texts, head.features)
        if head.target_ids is not None:
            logits = logits[..., head.target_ids]
        attention, states, loss = UnrolledAttention(), head.fuse(features[:, :-1].flatten(0, 1)), torch.zeros(())
        for step in range(UNROLLED):
            rows = texts.shape[1] - 1 - step
            positions = (torch.arange(rows) + step).repeat(len(texts))
            states = head.step(texts[:, 1 + step :].flatten(), states, positions, attention.step([rows] * len(texts)))
            guessed = functional.log_softmax(head.logits(states), dim=-1)
            loss = loss - (logits[:, 1 + step :].flatten(0, 1).softmax(dim=-1) * guessed).sum(dim=-1).mean()
            if head.kind == "eagle":  # its states are guesses of the target's
                loss = loss + functional.smooth_l1_loss(states, features[:, 1 + step :].flatten(0, 1))
            states = states.view(len(texts), rows, -1)[:, :-1].flatten(0, 1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def draft(head, repetitive: Repetitive, cache, tokens: list[int], known: int, hidden: torch.Tensor):
    """A chain below the last token; pairs from token ``known`` on are committed first."""
    vocabulary = DraftVocabulary(VOCAB, getattr(head, "target_ids", None))
    if isinstance(head, MedusaHeads):
        guesser = MedusaLogits(head, vocabulary, hidden[-1:])
    else:
        pairs = CommittedPairs(
            rows=Pass(sequence_ids=(0,), counts=(len(tokens) - known,)),
            tokens_T=torch.tensor(tokens[known:]),
            positions_T=torch.arange(known - 1, len(tokens) - 1),
            features_TF=hidden[known - 1 :],
        )
        states = head.extend(pairs, cache)[-1:]
        guesser = RecurrentLogits(
            head, cache, vocabulary, sequence_ids=[0], states_SE=states, positions=[len(tokens) - 1]
        )
    limits = TreeLimits(nodes=UNROLLED + 1, depth=UNROLLED, width=1)
    return grow(guesser, [Stem.bare(tokens[-1])], [limits], MatcherFrame([None], ()))[0].tree


@torch.inference_mode()
def acceptance(head, repetitive: Repetitive) -> float:
    """Accepted guesses of all guesses, over greedy continuations of texts that were not trained on."""
    source, accepted, guessed = random.Random(3), 0, 0
    for prompt in corpus(source, 6, 9).tolist():
        tokens, known = list(prompt), 1
        cache = None
        if not isinstance(head, MedusaHeads):
            cache = ContiguousCache(head.shape, head.num_layers, dtype=torch.float32, device=torch.device("cpu"))
        while len(tokens) < 32:
            hidden, _ = repetitive.read(torch.tensor([tokens[:-1]]), head.features)
            tree = draft(head, repetitive, cache, tokens, known, hidden[0])
            known = len(tokens)
            _, logits = repetitive.read(torch.tensor([[*tokens, *tree.tokens[1:]]]), head.features)
            outcome = walk(tree, logits[0, len(tokens) - 1 :].argmax(dim=-1).tolist())
            tokens += outcome.tokens
            accepted += len(outcome.nodes) - 1
            guessed += len(tree) - 1
    assert guessed > 100
    return accepted / guessed


@pytest.mark.parametrize("kind", ["eagle", "eagle3", "mtp"])
def test_a_recurrent_head_learns_to_be_accepted(kind, repetitive):
    torch.manual_seed(4)
    head = new_head(kind, repetitive.target)
    assert acceptance(head, repetitive) < 0.5
    train(head, repetitive, steps=100)
    assert acceptance(head, repetitive) > 0.9


def test_medusa_heads_learn_to_be_accepted(repetitive):
    torch.manual_seed(5)
    heads = MedusaHeads(repetitive.target, num_heads=UNROLLED, num_blocks=1, share_lm_head=False)
    assert acceptance(heads, repetitive) < 0.5
    source, optimizer = random.Random(6), torch.optim.AdamW(heads.parameters(), lr=5e-3)
    for _ in range(150):
        texts = corpus(source, 8, 20)
        hidden, _ = repetitive.read(texts, heads.features)
        loss = torch.zeros(())
        for head in range(UNROLLED):
            logits = heads.logits(head, hidden[:, : -2 - head].flatten(0, 1))
            loss = loss + functional.cross_entropy(logits, texts[:, 2 + head :].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert acceptance(heads, repetitive) > 0.9
