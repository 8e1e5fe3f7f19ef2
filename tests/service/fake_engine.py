"""An engine without a model: it says the prompt again, token by token, and misbehaves on request.

Picklable by reference, so that it can be built in a real child process.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field

import numpy as np

from decoding.errors import CapacityError
from decoding.finish import FinishReason
from decoding.masks import unpack
from decoding.rows import TokenLogprobs
from drafters.speculation import Offer
from engine.blocks import BlockCounts
from engine.config import ModelCard
from engine.request import Finish, GenerationRequest, TokenEvent, Usage
from engine.stats import EngineStats, Totals

TOTAL_BLOCKS = 64
EOS = 2
HANG = "hang"
CRASH = "crash"
RAISE = "raise"
STALL = "stall"
REFUSE = "refuse"


@dataclass(kw_only=True)
class _Sample:
    request: GenerationRequest
    index: int
    matcher: object = None
    stop: object = None
    output: list[int] = field(default_factory=list)


class FakeEngine:
    """Each sample repeats its prompt and ends with EOS, or for ever with ignore_eos; a grammar draws its lowest token.

    A request's `tenant` names a misbehaviour: HANG blocks in a step, CRASH ends the process, RAISE raises from a step,
    STALL steps without progress, REFUSE raises from submit. Nothing comes before an awaited grammar.
    """

    def __init__(self, *, step_s: float = 0.0, max_live: int = 8, vocab_size: int = 520, context_length: int = 128):
        self.card = ModelCard(
            name="fake",
            architecture="fake",
            parameters=1,
            dtype="float32",
            device="cpu",
            vocab_size=vocab_size,
            context_length=context_length,
            kv_cache_tokens=TOTAL_BLOCKS * 16,
            max_batch_tokens=256,
            eos_token_ids=(0, EOS),
            offer=Offer(loaded=("forced", "ngram"), draft_tokens=8, tree_width=2, max_draft_tokens=64),
        )
        self._step_s = step_s
        self._max_live = max_live
        self._totals = Totals()
        self._samples: dict[str, list[_Sample]] = {}

    @property
    def has_work(self) -> bool:
        return bool(self._samples)

    def submit(self, request: GenerationRequest) -> None:
        if request.tenant == REFUSE:
            raise RuntimeError("secret detail")
        if len(self._samples) >= self._max_live:
            raise CapacityError(f"{len(self._samples)} requests are waiting; try again later", retry_after_s=2.5)
        self.card.offer.settings(request.speculation)
        self._samples[request.request_id] = [
            _Sample(
                request=request,
                index=index,
                matcher=request.grammar.matcher() if request.grammar else None,
                stop=request.stop.fork() if request.stop else None,
            )
            for index in range(request.n)
        ]
        self._totals.prompt_tokens += len(request.prompt)

    def abort(self, request_id: str) -> list[TokenEvent]:
        self._samples.pop(request_id, None)
        return []

    def step(self) -> list[TokenEvent]:
        time.sleep(self._step_s)
        tenants = {sample.request.tenant for samples in self._samples.values() for sample in samples}
        if HANG in tenants:
            time.sleep(1000)
        if CRASH in tenants:
            os._exit(3)
        if RAISE in tenants:
            raise RuntimeError("secret detail")
        if STALL in tenants:
            return []
        ready = [sample for samples in self._samples.values() for sample in samples if _may_draw(sample)]
        self._totals.steps += bool(ready)
        events = [self._advance(sample) for sample in ready]
        self._samples = {key: samples for key, samples in self._samples.items() if samples}
        return events

    def stats(self) -> EngineStats:
        used = sum(map(len, self._samples.values()))
        blocks = BlockCounts(total=TOTAL_BLOCKS, free=TOTAL_BLOCKS - used, cached=0, used=used)
        return EngineStats(running=used, waiting=0, blocks=blocks, totals=self._totals.copy())

    def _advance(self, sample: _Sample) -> TokenEvent:
        request, params = sample.request, sample.request.params
        token = self._next(sample)
        sample.output.append(token)
        self._totals.generation_tokens += 1
        finish = self._finish(sample, token)
        if finish is not None:
            self._samples[request.request_id].remove(sample)
        logprobs = TokenLogprobs(token=-0.5, top=((token, -0.5), (EOS, -1.5))[: params.logprobs or 0])
        return TokenEvent(
            request_id=request.request_id,
            sample_index=sample.index,
            tokens=(token,),
            logprobs=() if params.logprobs is None else (logprobs,),
            finish=finish,
        )

    def _next(self, sample: _Sample) -> int:
        if sample.matcher is not None:
            if sample.matcher.is_accepting:
                return EOS
            legal = np.flatnonzero(unpack(sample.matcher.mask().bits_W, self.card.vocab_size))
            return int(legal[sample.index % len(legal)])
        prompt, said = sample.request.prompt, len(sample.output)
        ends = said >= len(prompt) and not sample.request.params.ignore_eos
        return EOS if ends else prompt[said % len(prompt)]

    def _finish(self, sample: _Sample, token: int) -> Finish | None:
        reason, complete = None, None
        if sample.matcher is not None:
            sample.matcher.advance(token)
            complete = sample.matcher.is_finished
        if token == EOS:
            reason = FinishReason.EOS
        elif sample.stop is not None and sample.stop.feed(token):
            reason, complete = FinishReason.STOP_STRING, None if complete is None else False
        elif len(sample.output) >= sample.request.params.max_tokens:
            reason = FinishReason.LENGTH
        if reason is None:
            return None
        usage = Usage(prompt=len(sample.request.prompt), completion=len(sample.output))
        return Finish(reason=reason, constraint_complete=complete, usage=usage)


def _may_draw(sample: _Sample) -> bool:
    awaited = sample.request.awaited
    if sample.matcher is None and awaited is not None and (grammar := awaited.arrived()) is not None:
        sample.matcher = grammar.matcher()
    return awaited is None or sample.matcher is not None


def same(value, *_ignored):
    return value


def build(files, trie, **options) -> FakeEngine:
    return FakeEngine(vocab_size=trie.vocabulary.size, **options)


def broken_build(error: Exception, files, trie) -> FakeEngine:
    raise error


def deadly_build(files, trie) -> FakeEngine:
    os._exit(7)
