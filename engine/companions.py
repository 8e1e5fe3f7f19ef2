"""The engine's side of drafters with state beside the target's: what it tells them, and what it lends them.

Invariant: a companion that fails loses what it knew of the sequences concerned, and so guesses nothing for them; the
step goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence as Seq

import numpy as np
import torch

from drafters.companion import Companion, Computed, DraftRows
from drafters.heads.target import FeatureSpec
from engine.forward import ForwardInput
from engine.kv_cache import KVCache
from engine.models.base import CausalModel, EarlyExitModel, Hidden
from engine.pack import slots_of
from engine.plan import Work

log = logging.getLogger(__name__)


class StepStates:
    """`drafters.companion.TargetStates` of one step."""

    def __init__(self, hidden: Hidden, taps: tuple[int, ...]) -> None:
        self._final_TE = hidden.final_TE
        self._tapped = dict(zip(taps, hidden.taps_TE, strict=True))

    def features(self, spec: FeatureSpec, rows: Seq[int]) -> torch.Tensor:
        """See the protocol."""
        rows_N = torch.tensor(rows, dtype=torch.int64, device=self._final_TE.device)
        if not spec.layer_inputs:
            return self._final_TE.index_select(0, rows_N)
        return torch.cat([self._tapped[layer].index_select(0, rows_N) for layer in spec.layer_inputs], dim=-1)


class Companions:
    """All of an engine's companions."""

    def __init__(self, companions: Seq[Companion] = ()) -> None:
        self._companions = tuple(companions)
        specs = [companion.features for companion in self._companions]
        self.taps = tuple(sorted({layer for spec in specs if spec is not None for layer in spec.layer_inputs}))
        """Layers whose inputs the target has to show."""

    def __bool__(self) -> bool:
        return bool(self._companions)

    def follow(self, computed: Seq[Computed], hidden: Hidden) -> None:
        """Tell what the step computed."""
        states = StepStates(hidden, self.taps)
        for companion in self._companions:
            try:
                companion.follow(computed, states)
            except Exception:
                log.exception("drafter %s failed to follow; it starts anew with these sequences", companion)
                for part in computed:
                    companion.forget(part.sequence_id)

    def fork(self, leader_id: int, follower_id: int) -> None:
        """See `Companion`."""
        for companion in self._companions:
            companion.fork(leader_id, follower_id)

    def forget(self, sequence_id: int) -> None:
        """See `Companion`."""
        for companion in self._companions:
            companion.forget(sequence_id)

    def copy_slots(self, sources: torch.Tensor, targets: torch.Tensor) -> None:
        """See `Companion`."""
        for companion in self._companions:
            companion.copy_slots(sources, targets)


class Followed:
    """What one step computed, for companions; made before its tokens are committed and filled while they are.

    packed rows     | chunk ... , node 0 | nodes 1 ... |      of one work; kept nodes follow the chunk's first rows
    """

    def __init__(self, works: Seq[Work], starts: Seq[int]) -> None:
        """``starts``: packed offsets of the works' shares of the step."""
        self._parts = [
            (work, start, work.sequence.num_computed, work.sequence.blocks)
            for work, start in zip(works, starts[:-1], strict=True)
        ]
        self.kept: dict[int, tuple[int, ...]] = {}
        """By sequence, the nodes whose tokens' keys and values stay."""
        self.forks: list[tuple[int, int]] = []
        """(leader, follower) of samples that begin."""

    def tell(self, companions: Companions, hidden: Hidden) -> None:
        """Tell companions, where there are any."""
        if not companions:
            return
        computed = [part for part in map(self._computed, self._parts) if part.rows]
        companions.follow(computed, hidden)
        for leader, follower in self.forks:
            companions.fork(leader, follower)

    def _computed(self, part: tuple[Work, int, int, Seq[int]]) -> Computed:
        work, start, first, blocks = part
        before = work.chunk - int(work.reaches_end)
        nodes = self.kept.get(work.sequence.id, ()) if work.reaches_end else ()
        rows = [*range(start, start + before), *(start + before + node for node in nodes)]
        return Computed(
            sequence_id=work.sequence.id, tokens=work.sequence.tokens, blocks=blocks, first=first, rows=rows
        )


class EarlyExit:
    """`drafters.companion.DraftModel`: the target's first layers with its norm and output layer.

    Its keys and values are those that the target writes to the same slots, so that the target's pass over the guesses
    writes them again, unchanged, and computes the rest.
    """

    def __init__(self, model: EarlyExitModel, cache: KVCache, num_layers: int, vocab_size: int) -> None:
        """``vocab_size``: the tokenizer's true size, which logits are cut to."""
        self._model = model
        self._cache = cache
        self._num_layers = num_layers
        self._vocab_size = vocab_size

    def logits(self, rows: Seq[DraftRows], wanted: Seq[int]) -> torch.Tensor:
        """See the protocol."""
        batch = _batch(rows, self._model.device)
        hidden_TE = self._model.early_hidden(batch, self._cache, num_layers=self._num_layers)
        wanted_RE = hidden_TE.index_select(0, _indices(wanted, self._model.device))
        return self._model.logits(wanted_RE)[:, : self._vocab_size]

    def compute(self, rows: Seq[DraftRows]) -> None:
        """See the protocol."""
        self._model.early_hidden(_batch(rows, self._model.device), self._cache, num_layers=self._num_layers)

    def copy_slots(self, sources: torch.Tensor, targets: torch.Tensor) -> None:
        """The target's copy is its own."""


class OwnDraftModel:
    """`drafters.companion.DraftModel`: another model, with keys and values of its own in the slots of the target."""

    def __init__(self, model: CausalModel, num_blocks: int, vocab_size: int) -> None:
        """``vocab_size``: the tokenizer's true size, which logits are cut to."""
        self._model = model
        self._vocab_size = vocab_size
        self._cache = KVCache(model.kv_shapes, num_blocks, model.dtype, model.device)

    def logits(self, rows: Seq[DraftRows], wanted: Seq[int]) -> torch.Tensor:
        """See the protocol."""
        hidden_TE = self._model.hidden(_batch(rows, self._model.device), self._cache).final_TE
        wanted_RE = hidden_TE.index_select(0, _indices(wanted, self._model.device))
        return self._model.logits(wanted_RE)[:, : self._vocab_size]

    def compute(self, rows: Seq[DraftRows]) -> None:
        """See the protocol."""
        self._model.hidden(_batch(rows, self._model.device), self._cache)

    def copy_slots(self, sources: torch.Tensor, targets: torch.Tensor) -> None:
        """See the protocol."""
        self._cache.move(sources, targets)


def _batch(rows: Seq[DraftRows], device: torch.device) -> ForwardInput:
    width = max(len(part.blocks) for part in rows)
    starts = np.cumsum([0, *(len(part.tokens) for part in rows)])
    offsets = [np.arange(len(part.tokens)) if part.parents is None else _depths(part.parents) for part in rows]
    places = [slots_of(part.blocks, np.arange(part.start, part.start + len(part.tokens))) for part in rows]
    return ForwardInput(
        tokens_T=_indices([token for part in rows for token in part.tokens], device),
        positions_T=torch.from_numpy(
            np.concatenate([part.start + offset for part, offset in zip(rows, offsets, strict=True)])
        ).to(device),
        slots_T=torch.from_numpy(np.concatenate(places)).to(device),
        starts=tuple(starts.tolist()),
        context_lens=tuple(part.start for part in rows),
        parents=tuple(part.parents for part in rows),
        block_tables_SB=torch.tensor(
            [[*part.blocks, *[0] * (width - len(part.blocks))] for part in rows], device=device
        ),
        rows_R=_indices([], device),
    )


def _depths(parents: Seq[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    depths = np.zeros(len(parents), dtype=np.int64)
    for row, parent in enumerate(parents):
        depths[row] = 0 if parent < 0 else depths[parent] + 1
    return depths


def _indices(values: Seq[int], device: torch.device) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64, device=device)
