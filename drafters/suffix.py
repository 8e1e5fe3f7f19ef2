"""What followed the longest known suffix, with counts: over the request, and over earlier responses of its tenant.

(Oliaro et al. 2024, "SuffixDecoding", with suffixes of bounded length.) Invariant: nothing that one tenant's responses
taught is ever used for another, and what is remembered stays within `REMEMBERED_TOKENS`, the oldest response of the
tenant that was served longest ago going first.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from drafters.growing import GrowingTree
from drafters.source import grow_tips
from drafters.suffix_tree import DEPTH, SuffixTree, SuffixWriter

REMEMBERED_TOKENS = 1 << 14
"""Tokens of earlier responses that are kept, of all tenants together; some 30 MB at the worst."""
RESPONSE_TOKENS = 1 << 11
"""Of one response, so many of the first tokens are remembered."""
PROMPT_TOKENS = 1 << 11
"""Of a prompt, so many of the last tokens are read."""
LEAST_CHANCE = 0.3
"""Guesses that are less likely than this, all before them included, are not made."""


class Memory:
    """Earlier responses by tenant."""

    def __init__(self, capacity: int = REMEMBERED_TOKENS) -> None:
        """``capacity`` bounds the tokens of all responses together."""
        self._capacity = capacity
        self._tenants: OrderedDict[str, _Responses] = OrderedDict()
        self.num_tokens = 0

    def tree(self, tenant: str) -> SuffixTree | None:
        """What the tenant's responses taught, or None where there are none."""
        responses = self._tenants.get(tenant)
        return None if responses is None else responses.tree

    def add(self, tenant: str, tokens: Sequence[int]) -> None:
        """Remember a response, and forget old ones for it."""
        kept = tuple(tokens[: min(RESPONSE_TOKENS, self._capacity)])
        if not kept:
            return
        responses = self._tenants.setdefault(tenant, _Responses())
        self._tenants.move_to_end(tenant)
        responses.tree.add(kept)
        responses.texts.append(kept)
        self.num_tokens += len(kept)
        while self.num_tokens > self._capacity:
            self._forget_one()

    def _forget_one(self) -> None:
        tenant, responses = next(iter(self._tenants.items()))
        oldest = responses.texts.popleft()
        responses.tree.remove(oldest)
        self.num_tokens -= len(oldest)
        if not responses.texts:
            del self._tenants[tenant]


@dataclass(slots=True, kw_only=True)
class _Responses:
    tree: SuffixTree = field(default_factory=SuffixTree)
    texts: deque[tuple[int, ...]] = field(default_factory=deque)


@dataclass(slots=True, kw_only=True)
class _Request:
    """What is kept of a running sequence: a tree over its own text, and how far that was read."""

    tenant: str
    num_prompt: int
    tree: SuffixTree
    writer: SuffixWriter
    length: int
    output: list[int] = field(default_factory=list)


class SuffixSource:
    """The likeliest continuations by counts, as a tree."""

    name = "suffix"

    def __init__(self, memory: Memory | None = None) -> None:
        """``memory`` may bound what is remembered more tightly."""
        self._memory = memory or Memory()
        self._requests: dict[int, _Request] = {}

    def grow(self, trees: Sequence[GrowingTree]) -> None:
        """See `drafters.source.Source`."""
        for tree in trees:
            self._read(tree)
        grow_tips(self, self.name, trees)

    def observe(self, sequence_id: int, tokens: Sequence[int]) -> None:
        """Gather the response."""
        request = self._requests.get(sequence_id)
        if request is not None:
            request.output += tokens

    def forget(self, sequence_id: int) -> None:
        """Remember the response for its tenant, and drop the rest."""
        request = self._requests.pop(sequence_id, None)
        if request is not None:
            self._memory.add(request.tenant, request.output)

    def guess(self, tree: GrowingTree, node: int) -> list[list[int]]:
        """Paths of the likeliest nodes, best first (Li et al. 2024, EAGLE-2: by cumulative probability)."""
        own = self._requests[tree.context.sequence_id].tree
        learned = self._memory.tree(tree.context.tenant)
        tail = tree.tail(node, DEPTH - 1)
        paths: list[list[int]] = []
        waiting: list[tuple[float, list[int]]] = [(-1.0, [])]
        while waiting and len(paths) <= tree.room:
            chance, path = heapq.heappop(waiting)
            paths.append(path)
            for token, share in _likeliest([*tail, *path], own, learned, tree.width):
                if -chance * share >= LEAST_CHANCE:
                    heapq.heappush(waiting, (chance * share, [*path, token]))
        return paths[1:]

    def _read(self, tree: GrowingTree) -> None:
        context = tree.context
        request = self._requests.get(context.sequence_id)
        if request is None:
            own = SuffixTree()
            request = self._requests[context.sequence_id] = _Request(
                tenant=context.tenant,
                num_prompt=context.num_prompt,
                tree=own,
                writer=own.writer(),
                length=max(0, context.num_prompt - PROMPT_TOKENS),
                output=list(context.tokens[context.num_prompt :]),
            )
        for token in context.tokens[request.length :]:
            request.writer.write(token)
        request.length = len(context.tokens)


def _likeliest(text: Sequence[int], own: SuffixTree, learned: SuffixTree | None, count: int) -> list[tuple[int, float]]:
    """Up to ``count`` next tokens with their chances, by the tree that knows the longer suffix, or else by the own.

    A suffix of m tokens leaves 3 / m of a further time open, in which something else came.
    """
    matched, counts = own.after(text)
    if learned is not None and (more := learned.after(text))[0] > matched:
        matched, counts = more
    if not counts:
        return []
    total = sum(counts.values()) + 3 / matched
    best = heapq.nlargest(count, counts.items(), key=lambda item: (item[1], -item[0]))
    return [(token, times / total) for token, times in best]
