"""One measured run: some requests of a workload through the engine with one drafter, and what became of them.

Only steps after the last prompt count: a prompt costs the same whoever drafts. Invariant: every run has a tenant of its
own, so that neither the prefix cache nor what a drafter remembers of earlier answers helps a later one.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer

from decoding.params import SamplingParams
from drafters.speculation import Speculation
from engine.engine import Engine
from engine.request import GenerationRequest
from grammars.json_schema.compile import JsonOptions, compile_json_schema
from grammars.matching.trie import TokenTrie
from grammars.protocol import Grammar
from tests.bench.speculation.workloads import Workload

STAGES = ("draft", "mask", "forward", "sample")
_ids = itertools.count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one run came to.

    Attributes:
        tokens: generated while the clock ran.
        seconds: wall time of these steps.
        steps: forward passes.
        rows: that they computed; every sequence has one for the last known token, and one per guess.
        sequence_steps: steps, each counted once per sequence that took part in it.
        stages: seconds by stage of the step.
        texts: token ids of each answer, whole.
    """

    tokens: int
    seconds: float
    steps: int
    rows: int
    sequence_steps: int
    stages: Mapping[str, float]
    texts: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What plain decoding says: token ids, and at each position how far (natural log) the second best was behind."""

    texts: tuple[tuple[int, ...], ...]
    gaps: tuple[tuple[float, ...], ...]


class Bench:
    """The engine with everything that runs share."""

    def __init__(self, engine: Engine, tokenizer: Tokenizer, trie: TokenTrie) -> None:
        self.engine = engine
        self._tokenizer = tokenizer
        self._trie = trie
        self._grammars: dict[tuple[str, str], Grammar] = {}

    def run(self, workload: Workload, prompts: Sequence[int], drafter: str, *, max_tokens: int) -> Run:
        """Serve these prompts of a workload together."""
        texts = self._submit(workload, prompts, drafter, max_tokens=max_tokens)
        engine = self.engine
        while engine.has_work and not all(texts.values()):
            self._step(texts)
        before = engine.stats().totals
        known = sum(map(len, texts.values()))
        sequence_steps, start = 0, time.perf_counter()
        while engine.has_work:
            sequence_steps += self._step(texts)
        seconds = time.perf_counter() - start
        after = engine.stats().totals
        return Run(
            tokens=sum(map(len, texts.values())) - known,
            seconds=seconds,
            steps=after.steps - before.steps,
            rows=sequence_steps + after.drafted.offered - before.drafted.offered,
            sequence_steps=sequence_steps,
            stages={stage: after.seconds[stage] - before.seconds.get(stage, 0.0) for stage in STAGES},
            texts=tuple(tuple(text) for text in texts.values()),
        )

    def reference(self, workload: Workload, prompts: Sequence[int], *, max_tokens: int) -> Reference:
        """Plain decoding with log-probabilities, not timed."""
        texts = self._submit(workload, prompts, "none", max_tokens=max_tokens, logprobs=2)
        gaps: dict[str, list[float]] = {request_id: [] for request_id in texts}
        while self.engine.has_work:
            for event in self.engine.step():
                texts[event.request_id] += event.tokens
                gaps[event.request_id] += [_gap(entry.top) for entry in event.logprobs]
        return Reference(texts=tuple(map(tuple, texts.values())), gaps=tuple(map(tuple, gaps.values())))

    def _step(self, texts: dict[str, list[int]]) -> int:
        events = self.engine.step()
        for event in events:
            texts[event.request_id] += event.tokens
        return len(events)

    def _submit(
        self, workload: Workload, prompts: Sequence[int], drafter: str, *, max_tokens: int, logprobs: int | None = None
    ) -> dict[str, list[int]]:
        tenant = f"run-{next(_ids)}"
        texts: dict[str, list[int]] = {}
        for index in prompts:
            request_id = f"{tenant}-{len(texts)}"
            texts[request_id] = []
            self.engine.submit(
                GenerationRequest(
                    request_id=request_id,
                    prompt=self._prompt(workload.prompts[index]),
                    params=SamplingParams(
                        max_tokens=min(max_tokens, workload.max_tokens), temperature=0.0, logprobs=logprobs
                    ),
                    grammar=self._grammar(workload),
                    tenant=tenant,
                    speculation=Speculation(drafter=drafter),
                )
            )
        return texts

    def _prompt(self, text: str) -> tuple[int, ...]:
        """The default model's own turns (ChatML)."""
        whole = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
        return tuple(self._tokenizer.encode(whole, add_special_tokens=False).ids)

    def _grammar(self, workload: Workload) -> Grammar | None:
        if workload.schema is None:
            return None
        key = (workload.schema, workload.whitespace.value)
        if key not in self._grammars:
            options = JsonOptions(whitespace=workload.whitespace)
            self._grammars[key] = compile_json_schema(workload.schema, options).bind(self._trie)
        return self._grammars[key]


def _gap(top: Sequence[tuple[int, float]]) -> float:
    """How far the second best is behind; infinite where only one token was legal."""
    return top[0][1] - top[1][1] if len(top) > 1 else float("inf")
