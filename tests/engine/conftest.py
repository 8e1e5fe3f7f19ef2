"""A toy paged model, grammars and drafters, so that the engine's own logic is tested apart from any real model."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from decoding.errors import GrammarStateError
from decoding.masks import MaskRow
from decoding.params import SamplingParams
from decoding.tree import DraftTree
from drafters.protocol import Draft
from engine.build import assemble
from engine.config import EngineConfig
from engine.engine import Engine
from engine.forward import ForwardInput
from engine.kv_cache import BLOCK_SIZE, KVCache, KVShape
from engine.models.base import Hidden
from engine.request import GenerationRequest, TokenEvent

VOCAB = 40
EOS = 1
WIDTH = 8


class ToyModel:
    """Logits depend on every visible (token, position) pair, read back from the paged cache: any wrong slot shows.

    float64 sums in slot order, so that equal inputs give equal bits whatever the batch.
    """

    architecture = "toy"
    parameters = 0
    vocab_size = VOCAB
    context_length = 4096
    kv_shapes = (KVShape(num_heads=1, head_dim=WIDTH),)
    dtype = torch.float64
    device = torch.device("cpu")

    def __init__(self, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.embedding = torch.randn(VOCAB, WIDTH, generator=generator, dtype=torch.float64)
        self.output = torch.randn(WIDTH, VOCAB, generator=generator, dtype=torch.float64)
        self.forwards = 0
        self.tokens_per_forward: list[int] = []

    def hidden(self, batch: ForwardInput, cache: KVCache, *, taps: tuple[int, ...] = ()) -> Hidden:
        assert not taps
        self.forwards += 1
        self.tokens_per_forward.append(len(batch.tokens_T))
        entry_TE = self.embedding[batch.tokens_T] * torch.cos(batch.positions_T.double() * 0.37 + 1.0)[:, None]
        cache.write(0, batch.slots_T, entry_TE[:, None], -entry_TE[:, None])
        flat = cache.keys[0].flatten(0, 1)[:, 0]
        rows = []
        for sequence in range(batch.num_sequences):
            start, end = batch.starts[sequence], batch.starts[sequence + 1]
            indices = torch.arange(batch.context_lens[sequence])
            table = batch.block_tables_SB[sequence]
            context = table[indices // BLOCK_SIZE] * BLOCK_SIZE + indices % BLOCK_SIZE
            parents = batch.parents[sequence] or tuple(range(-1, end - start - 1))
            for own in range(end - start):
                path, node = [], own
                while node >= 0:
                    path.append(node)
                    node = parents[node]
                visible = torch.cat([context, batch.slots_T[start + torch.tensor(path[::-1])]])
                total = torch.zeros(WIDTH, dtype=torch.float64)
                for entry in flat[visible]:
                    total = total * 0.9 + entry
                rows.append(total)
        return Hidden(torch.stack(rows))

    def logits(self, hidden_RE: torch.Tensor) -> torch.Tensor:
        return (
            torch.stack([torch.tanh(row) @ self.output for row in hidden_RE])
            if len(hidden_RE)
            else torch.zeros(0, VOCAB)
        )


def reference_tokens(request: GenerationRequest, sample_index: int = 0, **config: object) -> list[int]:
    """The slow twin: one sample, alone, whole prompt, no speculation, no cache."""
    single = GenerationRequest(
        request_id="alone",
        prompt=request.prompt,
        params=request.params,
        n=sample_index + 1,
        grammar=request.grammar,
        stop=request.stop,
        tenant=request.tenant,
    )
    engine = make_engine(chunked_prefill=False, prefix_cache=False, **config)
    engine.submit(single)
    return run(engine)["alone", sample_index].tokens


def make_engine(
    drafter: object | None = None, model: ToyModel | None = None, draft_tokens: int = 8, **config: object
) -> Engine:
    defaults: dict[str, object] = {"kv_cache_tokens": 2048, "max_batch_tokens": 64, "max_running": 16}
    return assemble(
        EngineConfig(draft_tokens=draft_tokens, **(defaults | config)),
        model or ToyModel(),
        name="toy",
        eos_token_ids=(EOS,),
        drafter=drafter,
    )


@dataclass
class Result:
    """Everything that one sample produced."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list = field(default_factory=list)
    finish: object = None


def collect(results: dict[tuple[str, int], Result], events: Iterable[TokenEvent]) -> None:
    for event in events:
        result = results.setdefault((event.request_id, event.sample_index), Result())
        assert result.finish is None, "a sample went on after its end"
        result.tokens += event.tokens
        result.logprobs += event.logprobs
        result.finish = event.finish


def run(engine: Engine, results: dict[tuple[str, int], Result] | None = None, limit: int = 5000) -> dict:
    """Step until nothing is left; block accounting is checked after every step."""
    results = {} if results is None else results
    for _ in range(limit):
        if not engine.has_work:
            break
        collect(results, engine.step())
        engine._scheduler.pool.check()
    assert not engine.has_work, "the engine did not come to an end"
    assert engine.stats().blocks.used == 0
    return results


class CountingGrammar:
    """Accepts token runs whose sum modulo `modulus` is 0; legal tokens are a function of the sum so far."""

    def __init__(self, modulus: int = 7, fail_after: int | None = None, max_tokens: int = 12) -> None:
        self.key = f"counting-{modulus}-{fail_after}-{max_tokens}"
        self.modulus, self.fail_after, self.max_tokens = modulus, fail_after, max_tokens

    def matcher(self) -> CountingMatcher:
        return CountingMatcher(self)


class CountingMatcher:
    def __init__(self, grammar: CountingGrammar) -> None:
        self.grammar = grammar
        self.history: list[int] = []

    @property
    def is_finished(self) -> bool:
        return EOS in self.history

    @property
    def is_accepting(self) -> bool:
        return not self.is_finished and sum(self.history) % self.grammar.modulus == 0 and bool(self.history)

    def legal(self) -> list[int]:
        total, count = sum(self.history), len(self.history)
        if self.is_finished:
            return []
        if count >= self.grammar.max_tokens and self.is_accepting:
            return [EOS]
        if count >= self.grammar.max_tokens:
            return [2 + (-total - 2) % self.grammar.modulus]
        ids = [token for token in range(2, VOCAB) if (token * 7 + total) % 3 != 0]
        return [EOS, *ids] if self.is_accepting else ids

    def mask(self) -> MaskRow:
        if self.grammar.fail_after is not None and len(self.history) >= self.grammar.fail_after:
            raise GrammarStateError("the matcher's bound of work is exhausted")
        return MaskRow.from_ids(self.legal(), VOCAB)

    def only_end(self) -> bool:
        return self.legal() == [EOS]

    def advance(self, token: int) -> None:
        if token not in self.legal():
            raise GrammarStateError(f"token {token} is illegal")
        self.history.append(token)

    def rollback(self, count: int) -> None:
        del self.history[len(self.history) - count :]

    def fork(self) -> CountingMatcher:
        copy = CountingMatcher(self.grammar)
        copy.history = list(self.history)
        return copy

    def forced(self, limit: int) -> bytes:
        return b""

    def branches(self, limit: int) -> tuple[bytes, ...]:
        return ()


class StopAt:
    """Stops after a given pair of tokens in a row."""

    def __init__(self, first: int, second: int) -> None:
        self.pair, self.last = (first, second), None

    def feed(self, token: int) -> bool:
        hit = (self.last, token) == self.pair
        self.last = token
        return hit

    def fork(self) -> StopAt:
        return StopAt(*self.pair)


class RandomDrafter:
    """Random trees, with illegal tokens, half of the guesses right by an oracle that knows the answer."""

    def __init__(self, seed: int, answers: dict[tuple[int, ...], list[int]] | None = None) -> None:
        self.random = random.Random(seed)
        self.answers = answers or {}

    def propose(self, contexts) -> list[Draft]:
        return [Draft(tree=self.tree(context)) for context in contexts]

    def tree(self, context) -> DraftTree:
        tokens, parents = [context.tokens[-1]], [-1]
        prompt = tuple(context.tokens[: context.num_prompt])
        right = self.answers.get(prompt, [])[len(context.tokens) - context.num_prompt :]
        along = 0
        for _ in range(self.random.randrange(context.limit)):
            if right and self.random.random() < 0.6:
                tokens.append(right.pop(0))
                parents.append(along)
                along = len(tokens) - 1
            else:
                tokens.append(self.random.randrange(VOCAB))
                parents.append(self.random.randrange(len(tokens) - 1))
        return DraftTree(tokens=tuple(tokens), parents=tuple(parents))

    def observe(self, sequence_id, tokens, accepted) -> None:
        assert accepted <= len(tokens)

    def forget(self, sequence_id) -> None:
        pass


class Toy:
    """Handed to tests as one fixture, since test files do not import each other."""

    VOCAB, EOS = VOCAB, EOS
    Model, Grammar, StopAt, RandomDrafter = ToyModel, CountingGrammar, StopAt, RandomDrafter
    engine: Callable[..., Engine] = staticmethod(make_engine)
    run = staticmethod(run)
    collect = staticmethod(collect)
    alone = staticmethod(reference_tokens)

    @staticmethod
    def request(request_id: str, prompt_seed: int, length: int, **fields: object) -> GenerationRequest:
        generator = np.random.default_rng(prompt_seed)
        params = {"max_tokens": 10, "temperature": 0.8, "seed": prompt_seed}
        params |= fields.pop("params", {})
        prompt = tuple(int(token) for token in generator.integers(2, VOCAB, length))
        return GenerationRequest(request_id=request_id, prompt=prompt, params=SamplingParams(**params), **fields)


@pytest.fixture(scope="session")
def toy() -> type[Toy]:
    return Toy
