"""The rows that one step draws from, and what a verdict on them is.

Every sequence that reaches the end of its known tokens is verified: one row per node of its draft tree. Samples that
follow another one's prompt draw their first token from that prompt's row, each with its own sample index. Invariant:
a sequence whose matcher fails here fails alone, with its error, and contributes no row.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace

from decoding.errors import EspalierError
from decoding.rows import Draw, RowContext
from decoding.tree import DraftTree
from decoding.verify import Walk
from drafters.protocol import Draft
from engine.plan import Work
from engine.sequence import Sequence
from grammars.tree_walk import masks

log = logging.getLogger(__name__)

NO_TOKEN = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """One sequence's draws of this step.

    Attributes:
        sequence: whose.
        draft: its guesses; node 0 alone where nothing was guessed.
        first_row: index of node 0 among the logits rows of the step.
        leader: the sequence whose prompt it follows, where it draws its first token from that one's row; else None.
        contexts: one per node; empty where the matcher failed.
        error: why it failed, else None.
    """

    sequence: Sequence
    draft: Draft
    leader: Sequence | None
    first_row: int
    contexts: tuple[RowContext, ...]
    error: str | None

    def rows(self) -> range:
        """Indices of its rows among the logits rows of the step."""
        return range(self.first_row, self.first_row + len(self.contexts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a verification decided: the walk, and the draw behind each of its tokens. No legal token is `NO_TOKEN`."""

    walk: Walk
    draws: tuple[Draw, ...]


def verifications(works: Seq[Work], drafts: Seq[Draft | None]) -> list[Verification]:
    """Rows with their masks for every work that reaches the end, and for the samples that follow it."""
    result: list[Verification] = []
    row = 0
    for work, draft in zip(works, drafts, strict=True):
        if draft is None:
            continue
        if not work.sequence.may_draw():  # its constraint did not come in time: the last token is computed again
            row += len(draft.tree)
            continue
        leader, root = work.sequence, Draft.nothing(draft.tree.tokens[0])
        # Followers first: they take their share of the leader's blocks before it can end and release them.
        result += [_verification(follower, root, row, leader) for follower in leader.followers]
        result.append(_verification(leader, draft, row))
        leader.followers = []
        row += len(draft.tree)
    return result


def _verification(sequence: Sequence, draft: Draft, row: int, leader: Sequence | None = None) -> Verification:
    contexts: tuple[RowContext, ...] = ()
    error = None
    try:
        contexts = _contexts(sequence, draft.tree)
    except EspalierError as problem:
        error = str(problem)
    except Exception:
        log.exception("matcher of request %s failed", sequence.request.request_id)
        error = "the constraint's matcher failed; this is a bug of the server"
    return Verification(sequence=sequence, draft=draft, leader=leader, first_row=row, contexts=contexts, error=error)


def _contexts(sequence: Sequence, tree: DraftTree) -> tuple[RowContext, ...]:
    arrived = sequence.may_draw()
    assert arrived, "samples of a request get their constraint together"
    plain = [sequence.row(tuple(tree.tokens[node] for node in tree.path(node)[1:])) for node in range(len(tree))]
    if sequence.matcher is None:
        return tuple(plain)
    rows = masks(sequence.matcher, tree)
    return tuple(replace(context, mask=mask) for context, mask in zip(plain, rows, strict=True))
