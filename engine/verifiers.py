"""The two verifiers: from the logits of a step to a verdict on every draft.

Invariant: what either commits follows the distribution of masked decoding without speculation, whatever was guessed;
what the walk commits is also the same text.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence as Seq
from typing import Protocol

import torch

from decoding.chances import Chances
from decoding.pipeline import LogitsPipeline
from decoding.rejection import accept_or_reject
from decoding.rows import Draw
from decoding.verify import Walk, walk
from engine.config import VerifierName
from engine.verification import NO_TOKEN, Verdict, Verification


class Verifier(Protocol):
    """Decides what is committed."""

    @property
    def wants_drawn_guesses(self) -> bool:
        """Whether drafters with a model are to draw their guesses, and to say from which distributions."""
        ...

    def verdicts(self, pending: Seq[Verification], logits_RV: torch.Tensor) -> list[Verdict | None]:
        """The verdict on every verification, from the rows of the step; None where its matcher failed."""
        ...


def make_verifier(name: VerifierName, pipeline: LogitsPipeline) -> Verifier:
    """The verifier of this name."""
    return WalkVerifier(pipeline) if name == "walk" else RejectionVerifier(pipeline)


class WalkVerifier:
    """Draw the target's token at every node, then walk down the tree along them."""

    wants_drawn_guesses = False

    def __init__(self, pipeline: LogitsPipeline) -> None:
        self._pipeline = pipeline

    def verdicts(self, pending: Seq[Verification], logits_RV: torch.Tensor) -> list[Verdict | None]:
        """See `Verifier`."""
        contexts = [context for item in pending for context in item.contexts]
        draws = iter(self._pipeline.draw(_rows(pending, logits_RV), contexts))
        return [self._verdict(item, list(itertools.islice(draws, len(item.contexts)))) for item in pending]

    @staticmethod
    def _verdict(item: Verification, draws: Seq[Draw]) -> Verdict | None:
        if item.error is not None:
            return None
        path = walk(item.draft.tree, [NO_TOKEN if draw.token is None else draw.token for draw in draws])
        return Verdict(walk=path, draws=tuple(draws[node] for node in path.nodes))


class RejectionVerifier:
    """Compare the target's probabilities with those that the guesses were drawn from, node by node down the tree."""

    wants_drawn_guesses = True

    def __init__(self, pipeline: LogitsPipeline) -> None:
        self._pipeline = pipeline

    def verdicts(self, pending: Seq[Verification], logits_RV: torch.Tensor) -> list[Verdict | None]:
        """See `Verifier`."""
        contexts = [context for item in pending for context in item.contexts]
        chances = iter(self._pipeline.chances(_rows(pending, logits_RV), contexts))
        return [self._verdict(item, list(itertools.islice(chances, len(item.contexts)))) for item in pending]

    @staticmethod
    def _verdict(item: Verification, chances: Seq[Chances]) -> Verdict | None:
        if item.error is not None:
            return None
        targets = [row.distribution for row in chances]
        draft = item.draft
        path = accept_or_reject(draft.tree, draft.proposals, targets, item.sequence.keys(), no_token=NO_TOKEN)
        return Verdict(walk=path, draws=_outcomes(path, chances))


def _outcomes(path: Walk, chances: Seq[Chances]) -> tuple[Draw, ...]:
    """What a draw of each token of the walk would have reported, log-probabilities included."""
    return tuple(
        chances[node].nothing or chances[node].drawn(token) for node, token in zip(path.nodes, path.tokens, strict=True)
    )


def _rows(pending: Seq[Verification], logits_RV: torch.Tensor) -> torch.Tensor:
    rows = [row for item in pending for row in item.rows()]
    if rows == list(range(len(logits_RV))):
        return logits_RV
    return logits_RV[torch.tensor(rows, dtype=torch.int64, device=logits_RV.device)]
