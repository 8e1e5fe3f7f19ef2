"""What the engine asks of a drafter.

Invariant: a drafter is a source of guesses. A wrong, illegal or malformed guess costs time and changes nothing else;
the engine prunes what the grammar forbids before it computes. What a drafter says about how it drew is believed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from decoding.distribution import Distribution
from decoding.rejection import Keys
from decoding.tree import DraftTree
from grammars.protocol import Matcher

AUTO = None
"""As a context's mix: the server chooses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """How a drafter with a model draws its guesses, for a verifier that compares its probabilities with the target's.

    Attributes:
        temperature: of its softmax; above 0.
        keys: of the sample's noise from the token after node 0 on.
    """

    temperature: float
    keys: Keys


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftContext:
    """One sequence that wants guesses.

    Attributes:
        sequence_id: stable over the sequence's life.
        tenant: whose request it is; nothing that is learned from one tenant's text may reach another's.
        tokens: prompt and committed output; the last one is node 0 of the tree.
        num_prompt: how many of them are the prompt.
        matcher: the constraint's state after `tokens`, or None. Read and fork it, never advance it.
        blocks: its block table, whose slots from that of node 0 on are free for `limit` nodes; what they hold is lost.
        limit: most nodes that the tree may have, node 0 included; at least 1.
        width: most guesses below one node; at least 1.
        mix: names of the drafters that the request asks for, none for plain decoding; None leaves it to the server.
        drawing: how drafters with a model draw their guesses; None where they are to choose the likeliest.
    """

    sequence_id: int
    tenant: str = ""
    tokens: Sequence[int]
    num_prompt: int
    matcher: Matcher | None
    blocks: Sequence[int] = ()
    limit: int
    width: int = 1
    mix: tuple[str, ...] | None = AUTO
    drawing: Drawing | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A tree of guesses, and what is known about them.

    Attributes:
        tree: node 0 and the guesses below it.
        sources: name of the drafter that guessed each node, "" for node 0; empty where it is not told.
        rejected: guesses that are not in the tree because the grammar forbids them.
        proposals: by node, the distribution that all its children were drawn from without replacement, in their order;
            the children of other nodes were chosen, whatever the noise. That a child is in the tree, or is not, may
            depend on the tokens of lower depths, never on its own.
    """

    tree: DraftTree
    sources: tuple[str, ...] = ()
    rejected: int = 0
    proposals: Mapping[int, Distribution] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.sources and len(self.sources) != len(self.tree):
            raise ValueError("a draft names the source of every node, or of none")
        if self.proposals:
            self._check_proposals()

    @classmethod
    def nothing(cls, token: int) -> Draft:
        """Node 0 alone, which is plain decoding."""
        return cls(tree=DraftTree.chain([token]))

    def kept(self, nodes: Sequence[int]) -> Draft:
        """The part with these ascending nodes, each with its parent; the others count as rejected.

        A node keeps all of its children that were drawn, or none.
        """
        if len(nodes) == len(self.tree):
            return self
        tree = self.tree.kept(nodes)
        parents = set(tree.parents)
        return Draft(
            tree=tree,
            sources=tuple(self.sources[node] for node in nodes) if self.sources else (),
            rejected=self.rejected + len(self.tree) - len(nodes),
            proposals={
                index: self.proposals[node]
                for index, node in enumerate(nodes)
                if node in self.proposals and index in parents
            },
        )

    def _check_proposals(self) -> None:
        children = self.tree.children()
        for node, proposal in self.proposals.items():
            if not 0 <= node < len(self.tree):
                raise ValueError(f"a draft has a proposal at node {node}, which is not in its tree")
            tokens = [self.tree.tokens[child] for child in children[node]]
            if len(set(tokens)) < len(tokens) or not all(proposal.of_token(token) > 0 for token in tokens):
                raise ValueError(f"the children of node {node} cannot have been drawn from its proposal")


class Drafter(Protocol):
    """Guesses for the whole batch at once. The engine has one; `drafters.composition` makes it of several sources."""

    def propose(self, contexts: Sequence[DraftContext]) -> list[Draft]:
        """One draft per context, in order, with node 0 carrying the last known token."""
        ...

    def observe(self, sequence_id: int, tokens: Sequence[int], accepted: int) -> None:
        """Learn that ``tokens`` were committed, of which the first ``accepted`` had been guessed."""
        ...

    def forget(self, sequence_id: int) -> None:
        """The sequence ended; drop what was kept for it."""
        ...
