"""From a drafter's guesses to trees that are safe to compute.

Invariant: whatever a drafter returns or raises, each tree that leaves here starts at the last known token, respects its
node limit and the vocabulary, and holds only tokens that the grammar allows; but a guess that was drawn stays, without
what hangs below it, since verification that drops it because of its value would be biased.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from collections.abc import Sequence as Seq

from decoding.errors import EspalierError
from decoding.tree import DraftTree
from drafters.choosing import ChoiceState, Chooser
from drafters.protocol import Draft, DraftContext, Drafter, Drawing
from engine.plan import Work
from grammars.tree_walk import legal_nodes

log = logging.getLogger(__name__)


class GuardedDrafter:
    """A drafter whose failures cost guesses and nothing else."""

    def __init__(self, drafter: Drafter, vocab_size: int, chooser: Chooser, *, draws: bool = False) -> None:
        """A guard of a drafter, and of the chooser that it may be made of.

        Args:
            drafter: whose guesses are checked.
            vocab_size: the tokenizer's true size; ids past it are padding, which nobody may guess.
            chooser: told when steps begin and end.
            draws: drafters with a model are to draw their guesses where the target draws.
        """
        self._drafter = drafter
        self._vocab_size = vocab_size
        self._chooser = chooser
        self._draws = draws

    def propose(self, works: Seq[Work]) -> list[Draft | None]:
        """One draft per work that reaches the end of its known tokens, None for the others."""
        contexts = [self._context(work) for work in works if work.reaches_end]
        self._chooser.begin(sum(work.chunk for work in works) - len(contexts))
        guesses = iter(self._guesses(contexts))
        return [self._checked(next(guesses), work) if work.reaches_end else None for work in works]

    def observe(self, sequence_id: int, tokens: Seq[int], accepted: int) -> None:
        """See `Drafter.observe`."""
        try:
            self._drafter.observe(sequence_id, tokens, accepted)
        except Exception:
            log.exception("drafter %s failed to observe", self._drafter)

    def end(self, rows: int, seconds: Mapping[str, float]) -> None:
        """A step of so many rows took these times by stage."""
        self._chooser.end(rows, 1e3 * sum(spent for stage, spent in seconds.items() if stage != "draft"))

    def state(self) -> ChoiceState:
        """What the chooser makes of things now."""
        return self._chooser.state()

    def forget(self, sequence_id: int) -> None:
        """See `Drafter.forget`."""
        try:
            self._drafter.forget(sequence_id)
        except Exception:
            log.exception("drafter %s failed to forget", self._drafter)

    def _guesses(self, contexts: list[DraftContext]) -> list[Draft]:
        try:
            drafts = self._drafter.propose(contexts)
            if len(drafts) == len(contexts):
                return drafts
            log.error("drafter %s returned %d drafts for %d contexts", self._drafter, len(drafts), len(contexts))
        except Exception:
            log.exception("drafter %s failed; this step decodes without it", self._drafter)
        return [Draft.nothing(context.tokens[-1]) for context in contexts]

    def _checked(self, draft: Draft, work: Work) -> Draft:
        tree, last = draft.tree, work.sequence.tokens[-1]
        if len(tree) == 1 or tree.tokens[0] != last:
            return Draft(tree=DraftTree.chain([last]), rejected=draft.rejected)
        if len(tree) > work.draft_nodes or not all(0 <= token < self._vocab_size for token in tree.tokens):
            request_id = work.sequence.request.request_id
            log.error("a drafter broke its limits for request %s; its guess is dropped", request_id)
            return Draft.nothing(last)
        if work.sequence.matcher is None:
            return draft
        try:
            return draft.kept(legal_nodes(work.sequence.matcher, tree, drawn=draft.proposals))
        except EspalierError:
            return Draft.nothing(last)  # the matcher's error is sticky and ends the sequence when its rows are made

    def _context(self, work: Work) -> DraftContext:
        sequence = work.sequence
        temperature = sequence.request.params.temperature
        drawing = Drawing(temperature=temperature, keys=sequence.keys()) if self._draws and temperature else None
        return DraftContext(
            sequence_id=sequence.id,
            tenant=sequence.request.tenant,
            tokens=sequence.tokens,
            num_prompt=sequence.num_prompt,
            matcher=sequence.matcher,
            blocks=sequence.blocks,
            limit=work.draft_nodes,
            width=sequence.drafting.width,
            mix=sequence.drafting.mix,
            drawing=drawing,
        )
