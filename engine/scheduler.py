"""Which sequences run in a step, and whose blocks they write to.

The one rule: computed tokens chase known ones. Decodes (a gap of one) come first, then chunks of longer gaps within the
token budget, oldest of the highest priority first; then the queue, whose head is admitted only when its whole gap fits
beside a watermark of free blocks. When a decode needs a block and none is left, the last sequence in rank loses its
blocks and goes back to the queue, to be recomputed. Invariant: blocks are reserved here and nowhere else, and the first
sequence in rank is never preempted, so that it always finishes.

A sequence whose constraint is still being made computes its prompt like any other. Then it is parked: it keeps its
blocks until others need them, and takes neither a place nor a share of the budget. Once preempted it waits for its
constraint without blocks, so that it is computed again at most once.
"""

from __future__ import annotations

import math
from bisect import insort
from dataclasses import dataclass, field

from engine.blocks import BlockPool
from engine.kv_cache import BLOCK_SIZE
from engine.plan import Plan, Work
from engine.sequence import Sequence, blocks_for
from engine.stats import Totals


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerLimits:
    """What bounds a step; see `EngineConfig` for the words. ``max_running`` is at most ``max_batch_tokens``."""

    max_batch_tokens: int
    max_running: int
    chunked_prefill: bool
    prefix_cache: bool
    watermark: float


@dataclass(slots=True, kw_only=True)
class _Draft:
    """A plan in the making."""

    budget: int
    works: list[Work] = field(default_factory=list)
    copies: list[tuple[int, int]] = field(default_factory=list)
    preempted: list[Sequence] = field(default_factory=list)


class Scheduler:
    """Running and waiting sequences, both in order of rank, and the pool that they share."""

    def __init__(self, pool: BlockPool, limits: SchedulerLimits, totals: Totals) -> None:
        self.pool = pool
        self._totals = totals
        self.running: list[Sequence] = []
        self.parked: list[Sequence] = []
        self.waiting: list[Sequence] = []
        self._limits = limits
        self._watermark_blocks = math.ceil(limits.watermark * pool.counts().total)

    def enqueue(self, sequence: Sequence) -> None:
        """Let a sequence without blocks wait for its turn."""
        assert not sequence.blocks
        insort(self.waiting, sequence, key=_rank)

    def fork(self, leader: Sequence, follower: Sequence) -> None:
        """Let a sample without blocks share the computed prompt of another; the last block is copied on write."""
        assert not follower.blocks
        follower.blocks = leader.blocks[: blocks_for(leader.num_prompt)]
        follower.num_computed = leader.num_computed
        follower.cached = leader.cached
        self.pool.share(follower.blocks)

    def join(self, follower: Sequence) -> None:
        """Let a forked sequence run on; where all places are taken it waits, without its blocks."""
        if len(self.running) < self._limits.max_running:
            insort(self.running, follower, key=_rank)
        else:
            self._give_up_blocks(follower)
            insort(self.waiting, follower, key=_rank)

    def remove(self, sequence: Sequence) -> None:
        """Forget a sequence that ended, wherever it is, and release its blocks."""
        for queue in (self.running, self.parked, self.waiting):
            if sequence in queue:
                queue.remove(sequence)
        self._give_up_blocks(sequence)

    def plan(self) -> Plan:
        """Decide the next step. Works are empty only where nothing can run."""
        draft = _Draft(budget=self._limits.max_batch_tokens)
        self._park()
        self._resume()
        self._plan_decodes(draft)
        self._plan_chunks(draft)
        if not draft.preempted:
            self._admit(draft)
        return Plan(works=tuple(draft.works), copies=tuple(draft.copies), preempted=tuple(draft.preempted))

    def _park(self) -> None:
        """Take those out of the way that have nothing left to compute before their constraint arrives."""
        for sequence in [sequence for sequence in self.running if sequence.gap == 1 and not sequence.may_draw()]:
            self.index_computed(sequence)
            self.running.remove(sequence)
            insort(self.parked, sequence, key=_rank)

    def _resume(self) -> None:
        """Let those run on whose constraint arrived, as far as there are places."""
        for sequence in [sequence for sequence in self.parked if sequence.may_draw()]:
            if len(self.running) < self._limits.max_running:
                self.parked.remove(sequence)
                insort(self.running, sequence, key=_rank)

    def _plan_decodes(self, draft: _Draft) -> None:
        """Room for guesses is shared evenly; where prompts wait, half of it is left to them."""
        decodes = [sequence for sequence in self.running if sequence.gap == 1]
        prompts_wait = bool(self.waiting) or len(decodes) < len(self.running)
        guesses = (draft.budget - len(decodes)) // (2 if prompts_wait else 1)
        for later, sequence in zip(range(len(decodes) - 1, -1, -1), decodes, strict=True):
            if sequence not in self.running:  # one before it in rank took its blocks
                continue
            room = sequence.max_length - len(sequence.tokens)
            nodes = max(1, min(1 + sequence.drafting.max_tokens, 1 + guesses // (later + 1), room))
            if self._reserve(sequence, nodes, draft):
                draft.works.append(Work(sequence=sequence, chunk=1, draft_nodes=nodes))
                draft.budget -= nodes
                guesses -= nodes - 1

    def _plan_chunks(self, draft: _Draft) -> None:
        for sequence in self.running:
            if sequence.gap > 1:
                self._plan_chunk(sequence, draft)

    def _plan_chunk(self, sequence: Sequence, draft: _Draft) -> None:
        """Blocks of the whole gap were reserved at admission."""
        chunk = min(sequence.gap, draft.budget) if self._limits.chunked_prefill else sequence.gap
        if chunk < 1 or (not self._limits.chunked_prefill and self._over_budget(chunk, draft)):
            return
        draft.works.append(Work(sequence=sequence, chunk=chunk, draft_nodes=int(chunk == sequence.gap)))
        draft.budget = max(0, draft.budget - chunk)

    @staticmethod
    def _over_budget(chunk: int, draft: _Draft) -> bool:
        """Unchunked, a prompt past the budget runs where it is the only prompt of its step."""
        return chunk > draft.budget and any(work.chunk > 1 for work in draft.works)

    def _admit(self, draft: _Draft) -> None:
        for sequence in tuple(self.waiting):
            if draft.budget < 1 or len(self.running) >= self._limits.max_running:
                return
            may_draw = sequence.may_draw()
            if not may_draw and sequence.preemptions:
                continue
            if not self._find_room(sequence, draft):
                if may_draw:
                    return
                continue  # it would only wait there, so that others may go before it
            self.waiting.remove(sequence)
            insort(self.running, sequence, key=_rank)
            self._plan_chunk(sequence, draft)

    def _find_room(self, sequence: Sequence, draft: _Draft) -> bool:
        """Take its blocks, of parked ones that are not above it in priority too where it may draw."""
        while not self._take_blocks(sequence):
            idle = self.parked[-1] if self.parked and sequence.may_draw() else None
            if idle is None or idle.request.priority > sequence.request.priority:
                return False
            self._preempt(idle, draft)
        return True

    def _take_blocks(self, sequence: Sequence) -> bool:
        """Blocks for everything known, cached ones where the prefix is known; False where they do not fit."""
        hits = self._cached_prefix(sequence) if self._limits.prefix_cache else []
        fresh = blocks_for(len(sequence.tokens)) - len(hits)
        watermark = self._watermark_blocks if self.running else 0
        if fresh + watermark > self.pool.num_available - sum(map(self.pool.is_cached, hits)):
            return False
        self.pool.claim(hits)
        sequence.blocks = [*hits, *self.pool.allocate(fresh)]
        sequence.num_computed = len(hits) * BLOCK_SIZE
        sequence.num_indexed = len(hits)
        if sequence.cached is None:
            sequence.cached = sequence.num_computed
            self._totals.prefix_queried_tokens += sequence.num_prompt
            self._totals.prefix_hit_tokens += sequence.num_computed
        return True

    def _cached_prefix(self, sequence: Sequence) -> list[int]:
        """Blocks of the longest cached prefix that leaves at least one token to compute."""
        full = (len(sequence.tokens) - 1) // BLOCK_SIZE
        sequence.chain.extend(sequence.tokens, full)
        hits: list[int] = []
        for index in range(full):
            tokens = sequence.tokens[index * BLOCK_SIZE : (index + 1) * BLOCK_SIZE]
            block = self.pool.lookup(sequence.chain.keys[index], parent=sequence.chain.parent(index), tokens=tokens)
            if block is None:
                break
            hits.append(block)
        return hits

    def _reserve(self, sequence: Sequence, slots: int, draft: _Draft) -> bool:
        """Own the blocks of the next ``slots`` slots alone; False where the sequence itself was preempted for them.

        blocks    | shared | shared, half full | (none yet) |
        slots                       ^ num_computed     ^ num_computed + slots
                             copy on write        allocate
        """
        first = sequence.num_computed // BLOCK_SIZE
        copied = [index for index in range(first, len(sequence.blocks)) if self.pool.is_shared(sequence.blocks[index])]
        new = max(0, blocks_for(sequence.num_computed + slots) - len(sequence.blocks))
        while len(copied) + new > self.pool.num_available:
            victim = self.parked[-1] if self.parked else self.running[-1]
            self._preempt(victim, draft)
            if victim is sequence:
                return False
        for index in copied:
            (target,) = self.pool.allocate(1)
            draft.copies.append((sequence.blocks[index], target))
            self.pool.release([sequence.blocks[index]])
            sequence.blocks[index] = target
        sequence.blocks += self.pool.allocate(new)
        return True

    def _preempt(self, sequence: Sequence, draft: _Draft) -> None:
        (self.parked if sequence in self.parked else self.running).remove(sequence)
        self._give_up_blocks(sequence)
        sequence.preemptions += 1
        draft.preempted.append(sequence)
        insort(self.waiting, sequence, key=_rank)

    def _give_up_blocks(self, sequence: Sequence) -> None:
        self.pool.release(sequence.blocks)
        sequence.blocks = []
        sequence.num_computed = 0
        sequence.num_indexed = 0

    def index_computed(self, sequence: Sequence) -> None:
        """Offer the blocks that came to be full of committed tokens to the prefix cache."""
        if not self._limits.prefix_cache:
            return
        full = sequence.num_computed // BLOCK_SIZE
        sequence.chain.extend(sequence.tokens, full)
        for index in range(sequence.num_indexed, full):
            tokens = sequence.tokens[index * BLOCK_SIZE : (index + 1) * BLOCK_SIZE]
            key, parent = sequence.chain.keys[index], sequence.chain.parent(index)
            self.pool.insert(sequence.blocks[index], key=key, parent=parent, tokens=tokens)
        sequence.num_indexed = full


def _rank(sequence: Sequence) -> tuple[int, int, int]:
    return sequence.rank
