"""`model`: a smaller language model, or the target's own first layers, as a source of guesses.

The draft model computes in the target's slots: known tokens that it has not seen (those that the last step committed,
above all) in one pass, then one pass per level. Invariant: the first `valid` tokens of a
sequence have draft keys and values, whatever was guessed and rejected since.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from drafters.companion import Computed, DraftModel, DraftRows, TargetStates
from drafters.growing import GrowingTree
from drafters.trees.choosing import DraftVocabulary
from drafters.trees.merging import grow_below
from drafters.trees.plants import Leaf

NAME = "model"


@dataclass(slots=True, kw_only=True)
class _Track:
    """Of one sequence: tokens with draft keys and values, and tokens that the target has computed."""

    valid: int
    end: int


class ModelSource:
    """`drafters.source.Source` and `drafters.companion.Companion` around a `DraftModel`."""

    name = NAME
    features = None

    def __init__(
        self,
        model: DraftModel,
        *,
        vocab_size: int,
        eos_token_ids: Sequence[int],
        block_size: int,
        context_length: int,
        depth: int,
        is_part_of_target: bool,
    ) -> None:
        """A source of guesses up to ``depth`` tokens long, in texts up to ``context_length``.

        ``is_part_of_target``: its keys and values are the target's, and valid wherever the target's are.
        """
        self._model = model
        self._vocabulary = DraftVocabulary(vocab_size, None)
        self._eos_token_ids = tuple(eos_token_ids)
        self._block_size = block_size
        self._context_length = context_length
        self._depth = depth
        self._is_part_of_target = is_part_of_target
        self._tracks: dict[int, _Track] = {}

    @torch.inference_mode()
    def grow(self, trees: Sequence[GrowingTree]) -> None:
        """Guess below the leaves of each tree."""
        able = [tree for tree in trees if self._keeps_pace(tree)]
        if not able:
            return
        logits = _ModelLogits(self._model, self._vocabulary, able, [self._start(tree) for tree in able])
        grow_below(self.name, able, logits, depth=self._depth, eos_token_ids=self._eos_token_ids, in_slots=True)
        if logits.has_computed and not self._is_part_of_target:
            for tree in able:
                self._tracks[tree.context.sequence_id].valid = len(tree.context.tokens)

    def observe(self, sequence_id: int, tokens: Sequence[int]) -> None:
        """Nothing to learn."""

    def follow(self, computed: Sequence[Computed], states: TargetStates) -> None:  # noqa: ARG002 (reads tokens alone)
        """Compute what fills a block, so that the prefix cache offers no block without it; the rest can wait."""
        if self._is_part_of_target:
            return
        rows = []
        for part in computed:
            track = self._track(part)
            track.end = part.first + len(part.rows)
            full = track.end // self._block_size * self._block_size
            if track.valid < full <= self._context_length:
                rows.append(DraftRows(blocks=part.blocks, start=track.valid, tokens=part.tokens[track.valid : full]))
                track.valid = full
        if rows:
            self._model.compute(rows)

    def fork(self, leader_id: int, follower_id: int) -> None:
        """See `Companion`."""
        if (track := self._tracks.get(leader_id)) is not None:
            self._tracks[follower_id] = replace(track)

    def forget(self, sequence_id: int) -> None:
        """See `Companion`."""
        self._tracks.pop(sequence_id, None)

    def copy_slots(self, sources: torch.Tensor, targets: torch.Tensor) -> None:
        """See `Companion`."""
        self._model.copy_slots(sources, targets)

    def _start(self, tree: GrowingTree) -> int:
        context = tree.context
        return len(context.tokens) - 1 if self._is_part_of_target else self._tracks[context.sequence_id].valid

    def _keeps_pace(self, tree: GrowingTree) -> bool:
        context = tree.context
        if len(context.tokens) + tree.limit > self._context_length or tree.has_guess_of(self.name):
            return False
        track = self._tracks.get(context.sequence_id)
        return self._is_part_of_target or (track is not None and track.end == len(context.tokens) - 1)

    def _track(self, part: Computed) -> _Track:
        """The track that this continues, or a fresh one where the sequence starts (again), behind its cached blocks."""
        track = self._tracks.get(part.sequence_id)
        if track is None or track.end != part.first:
            valid = part.first if part.first % self._block_size == 0 else 0
            track = self._tracks[part.sequence_id] = _Track(valid=valid, end=part.first)
        return track


@dataclass(slots=True, kw_only=True)
class _Growth:
    """Guesses of one sequence that were computed: their rows by node, tokens and parents by row."""

    rows: dict[int, int] = field(default_factory=dict)
    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)

    @property
    def is_chain(self) -> bool:
        return self.parents == list(range(-1, len(self.parents) - 1))


class _ModelLogits:
    """`drafters.trees.growth.DraftLogits`: a level of a chain is one row per sequence; a tree is computed again, whole.

    Its first pass computes the known tokens that are missing, whether a guess below node 0 is wanted or not.
    """

    reach = None

    def __init__(
        self, model: DraftModel, vocabulary: DraftVocabulary, trees: Sequence[GrowingTree], starts: Sequence[int]
    ) -> None:
        self.vocabulary = vocabulary
        self._model = model
        self._trees = trees
        self._starts = list(starts)
        self._growths = [_Growth() for _ in trees]
        self.has_computed = False
        """Whether the known tokens have draft keys and values now."""

    def first(self) -> torch.Tensor:
        self.has_computed = True
        rows = [self._known(tree, start) for tree, start in zip(self._trees, self._starts, strict=True)]
        return self._model.logits(rows, [end - 1 for end in itertools.accumulate(len(part.tokens) for part in rows)])

    def deeper(self, leaves: Sequence[Leaf]) -> torch.Tensor:
        if not self.has_computed:
            self.has_computed = True
            self._model.compute(
                [self._known(tree, start) for tree, start in zip(self._trees, self._starts, strict=True)]
            )
        rows: list[DraftRows] = []
        wanted: list[int] = []
        total = 0
        for seed, group in itertools.groupby(leaves, key=lambda leaf: leaf.seed):
            mine = list(group)
            part = self._guessed(seed, mine)
            rows.append(part)
            total += len(part.tokens)
            wanted += [total - len(mine) + index for index, leaf in enumerate(mine) if leaf.asked]
        return self._model.logits(rows, wanted)

    @staticmethod
    def _known(tree: GrowingTree, start: int) -> DraftRows:
        return DraftRows(blocks=tree.context.blocks, start=start, tokens=tree.context.tokens[start:])

    def _guessed(self, seed: int, leaves: Sequence[Leaf]) -> DraftRows:
        growth, context = self._growths[seed], self._trees[seed].context
        done = len(growth.tokens)
        for leaf in leaves:
            growth.parents.append(-1 if leaf.parent == 0 else growth.rows[leaf.parent])
            growth.rows[leaf.node] = len(growth.tokens)
            growth.tokens.append(leaf.token)
        first = len(context.tokens)
        if growth.is_chain:
            return DraftRows(blocks=context.blocks, start=first + done, tokens=growth.tokens[done:])
        return DraftRows(blocks=context.blocks, start=first, tokens=growth.tokens, parents=tuple(growth.parents))
