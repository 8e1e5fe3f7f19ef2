"""The engine: requests in, steps, tokens out.

A step reads: plan → draft → pack → forward → masks → verdicts → commit. Invariant: `step` is the only place where
sequences, matchers and KV move, and between two calls every block is accounted for.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from collections.abc import Sequence as Seq

import numpy as np

from decoding.errors import CapacityError, InvalidRequestError
from decoding.finish import FinishReason
from engine.commit import Committed, commit, finish
from engine.companions import Companions, Followed
from engine.config import EngineConfig, ModelCard
from engine.drafting import GuardedDrafter
from engine.pack import pack, slots_of
from engine.plan import Work
from engine.prefix import PrefixChain
from engine.request import Finish, GenerationRequest, TokenEvent
from engine.runner import ModelRunner
from engine.scheduler import Scheduler
from engine.sequence import Sequence
from engine.stats import EngineStats, StepClock, Totals
from engine.verification import Verdict, Verification, verifications
from engine.verifiers import Verifier
from grammars.protocol import Matcher


class Engine:
    """Continuous batching over one model. Not thread-safe: one thread submits, aborts and steps."""

    def __init__(
        self,
        *,
        card: ModelCard,
        config: EngineConfig,
        runner: ModelRunner,
        scheduler: Scheduler,
        verifier: Verifier,
        drafter: GuardedDrafter,
        companions: Companions,
        totals: Totals,
    ) -> None:
        self.card = card
        self._config = config
        self._runner = runner
        self._scheduler = scheduler
        self._verifier = verifier
        self._drafter = drafter
        self._companions = companions
        self._totals = totals
        self._live: dict[str, list[Sequence]] = {}
        self._ended: list[int] = []
        """Sequences that the drafter is still to forget."""
        self._ids = itertools.count()
        self._arrivals = itertools.count()

    @property
    def has_work(self) -> bool:
        """A sequence runs or waits."""
        return bool(self._live)

    def submit(self, request: GenerationRequest) -> None:
        """Queue a request.

        Raises InvalidRequestError where the model cannot run it, CapacityError where the queue is full.
        """
        self._check(request)
        leader, *followers = self._samples(request)
        leader.followers = followers
        self._live[request.request_id] = [leader, *followers]
        self._scheduler.enqueue(leader)

    def abort(self, request_id: str) -> list[TokenEvent]:
        """End every sample of a request now and free what it holds; unknown ids are ignored."""
        cut = [(sequence, finish(sequence, FinishReason.CANCELLED)) for sequence in self._live.get(request_id, ())]
        events = [self._end(sequence, end) for sequence, end in cut]
        self._forget_ended()
        return events

    def step(self) -> list[TokenEvent]:
        """Compute one step of everything that the plan holds; the tokens that it committed."""
        clock = StepClock()
        timed = clock.timed
        with timed("plan"):
            plan = self._scheduler.plan()
        self._totals.preemptions += len(plan.preempted)
        if not plan.works:
            return []
        with timed("draft"):
            self._runner.copy_blocks(plan.copies)
            drafts = self._drafter.propose(plan.works)
        with timed("forward"):
            batch = pack(
                plan.works, [None if draft is None else draft.tree for draft in drafts], self._runner.model.device
            )
            logits_RV, hidden = self._runner.forward(batch)
        with timed("mask"):
            pending = verifications(plan.works, drafts)
        with timed("sample"):
            verdicts = self._verifier.verdicts(pending, logits_RV)
        with timed("commit"):
            followed = Followed(plan.works, batch.starts)
            self._advance_chunks(plan.works, clock.seconds)
            events = [self._commit(item, outcome, followed) for item, outcome in zip(pending, verdicts, strict=True)]
        with timed("draft"):
            followed.tell(self._companions, hidden)
            self._forget_ended()
        self._drafter.end(len(batch.tokens_T), clock.seconds)
        self._totals.steps += 1
        self._totals.spend(clock.seconds)
        return events

    def stats(self) -> EngineStats:
        """Gauges now and totals since the start."""
        return EngineStats(
            running=len(self._scheduler.running) + len(self._scheduler.parked),
            waiting=len(self._scheduler.waiting),
            blocks=self._scheduler.pool.counts(),
            totals=self._totals.copy(),
            choice=self._drafter.state(),
        )

    def _check(self, request: GenerationRequest) -> None:
        if request.request_id in self._live:
            raise InvalidRequestError("request_id", f"{request.request_id!r} is running already; use a fresh id")
        if not request.prompt:
            raise InvalidRequestError("prompt", "is empty; give at least one token")
        if request.n < 1:
            raise InvalidRequestError("n", f"is {request.n}; it must be at least 1")
        outside = next((token for token in request.prompt if not 0 <= token < self.card.vocab_size), None)
        if outside is not None:
            vocabulary = f"the vocabulary [0, {self.card.vocab_size})"
            raise InvalidRequestError("prompt", f"token id {outside} is outside {vocabulary}")
        if len(request.prompt) >= self.card.context_length:
            room = f"{len(request.prompt)} tokens leave no room in the context of {self.card.context_length}"
            raise InvalidRequestError("prompt", f"{room}; shorten it")
        request.params.check_vocabulary(self.card.vocab_size)
        self.card.offer.settings(request.speculation)
        if request.params.finish_within_limit and request.grammar is None:
            raise InvalidRequestError("sampling.finish_within_limit", "needs a constraint; set one, or leave it unset")
        self._check_queue(request)

    def _check_queue(self, request: GenerationRequest) -> None:
        waiting = self._scheduler.waiting
        if len(waiting) >= self._config.max_waiting_requests:
            raise CapacityError(f"{len(waiting)} requests are waiting; try again later")
        tokens = sum(sequence.num_prompt for sequence in waiting) + len(request.prompt)
        if waiting and tokens > self._config.max_waiting_tokens:
            raise CapacityError(f"{tokens} prompt tokens would be waiting; try again later")

    def _samples(self, request: GenerationRequest) -> list[Sequence]:
        arrival = next(self._arrivals)
        drafting = self.card.offer.settings(request.speculation)
        longest = min(len(request.prompt) + request.params.max_tokens, self.card.context_length)
        return [
            Sequence(
                id=next(self._ids),
                request=request,
                sample_index=index,
                arrival=arrival,
                tokens=list(request.prompt),
                max_length=longest,
                drafting=drafting,
                matcher=_matcher(request, longest - len(request.prompt)),
                awaited=request.awaited,
                stop=request.stop.fork() if request.stop else None,
                chain=PrefixChain.of_tenant(request.tenant),
            )
            for index in range(request.n)
        ]

    @staticmethod
    def _advance_chunks(works: Seq[Work], seconds: Mapping[str, float]) -> None:
        """Known tokens up to the last one of each chunk are computed; the last of all is node 0, and the walk's."""
        for work in works:
            work.sequence.num_computed += work.chunk - int(work.reaches_end)
            work.sequence.spend(seconds)

    def _commit(self, item: Verification, outcome: Verdict | None, followed: Followed) -> TokenEvent:
        sequence = item.sequence
        if item.leader is not None:
            self._scheduler.fork(item.leader, sequence)
            followed.forks.append((item.leader.id, sequence.id))
        if outcome is None:
            return self._end(sequence, finish(sequence, FinishReason.ERROR, item.error or ""))
        gained = commit(sequence, outcome, draft=item.draft, eos_token_ids=self.card.eos_token_ids)
        self._keep_path(sequence, outcome, len(gained.tokens))
        followed.kept[sequence.id] = outcome.walk.nodes[: len(gained.tokens)]
        self._scheduler.index_computed(sequence)
        self._totals.count(item, gained)
        self._drafter.observe(sequence.id, gained.tokens, len(gained.nodes))
        if gained.finish is not None:
            return self._end(sequence, gained.finish, gained)
        if item.leader is not None:
            self._scheduler.join(sequence)
        return _event(sequence, gained)

    def _forget_ended(self) -> None:
        for sequence_id in self._ended:
            self._drafter.forget(sequence_id)
        self._ended.clear()

    def _keep_path(self, sequence: Sequence, outcome: Verdict, committed: int) -> None:
        """Move the KV of the accepted path to the front of its slots, and count it as computed.

        slots     n   n+1  n+2  n+3          node 0 sits at slot n = num_computed
        nodes     0    1    2    3           accepted path 0─2─3
        after     0    2    3    .           2 → n+1, 3 → n+2
        """
        first = sequence.num_computed
        moved = [(node, index) for index, node in enumerate(outcome.walk.nodes[:committed]) if node != index]
        if moved:
            indices = first + np.asarray(moved, dtype=np.int64)
            self._runner.move_slots(slots_of(sequence.blocks, indices[:, 0]), slots_of(sequence.blocks, indices[:, 1]))
        sequence.num_computed = first + committed

    def _end(self, sequence: Sequence, end: Finish, gained: Committed | None = None) -> TokenEvent:
        self._scheduler.remove(sequence)
        self._ended.append(sequence.id)
        request_id = sequence.request.request_id
        living = [other for other in self._live[request_id] if other is not sequence]
        if living:
            self._live[request_id] = living
        else:
            del self._live[request_id]
        return _event(sequence, gained, end)


def _matcher(request: GenerationRequest, limit: int) -> Matcher | None:
    if request.grammar is None:
        return None
    return request.grammar.finishing(limit) if request.params.finish_within_limit else request.grammar.matcher()


def _event(sequence: Sequence, gained: Committed | None, end: Finish | None = None) -> TokenEvent:
    return TokenEvent(
        request_id=sequence.request.request_id,
        sample_index=sequence.sample_index,
        tokens=gained.tokens if gained else (),
        logprobs=gained.logprobs if gained else (),
        finish=end,
    )
