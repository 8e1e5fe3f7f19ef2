"""Attention of a head in training: whole texts at once, then further steps on the head's own states.

Step 0 computes the committed pairs of every token. In step j > 0 row r stands for the j-th guess of a draft that was
begun after pair r (the "training-time test" of EAGLE-3, Li et al. 2025); it sees what that guess will see:

    step 0, pairs 0 .. r        steps 1 .. j, row r only

Invariant: nothing is overwritten, so that gradients reach every step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch.nn import functional


class UnrolledAttention:
    """`drafters.heads.attention.PassAttention` of several steps over packed texts, one `step` call before each."""

    def __init__(self) -> None:
        self._counts: list[list[int]] = []
        self._keys: defaultdict[int, list[tuple[torch.Tensor, ...]]] = defaultdict(list)
        self._values: defaultdict[int, list[tuple[torch.Tensor, ...]]] = defaultdict(list)

    def step(self, counts: Sequence[int]) -> UnrolledAttention:
        """Begin the next step with so many rows of each text, the first ones of the step before; all lose as many."""
        lost = {then - now for now, then in zip(counts, self._counts[-1], strict=True)} if self._counts else {0}
        assert len(lost) == 1
        assert min(lost) >= 0
        self._counts.append(list(counts))
        return self

    def attend(
        self, layer: int, q_THD: torch.Tensor, k_TKD: torch.Tensor, v_TKD: torch.Tensor, scale: float
    ) -> torch.Tensor:
        """See `PassAttention`. Texts of one length are computed at once, others one after the other."""
        counts, per_kv = self._counts[-1], q_THD.shape[1] // k_TKD.shape[1]
        self._keys[layer].append(_batches(k_TKD.repeat_interleave(per_kv, dim=1), counts))
        self._values[layer].append(_batches(v_TKD.repeat_interleave(per_kv, dim=1), counts))
        outputs = []
        for index, q_BQHD in enumerate(_batches(q_THD * scale, counts)):
            keys = [step[index] for step in self._keys[layer]]
            values = [step[index] for step in self._values[layer]]
            outputs.append(_attend(q_BQHD, keys, values).flatten(0, 1))
        return torch.cat(outputs)


def _batches(x_THD: torch.Tensor, counts: list[int]) -> tuple[torch.Tensor, ...]:
    """[B, rows, H, D] of all texts at once where they are of one length, else of each."""
    if len(set(counts)) == 1:
        return (x_THD.view(len(counts), counts[0], *x_THD.shape[1:]),)
    return tuple(part.unsqueeze(0) for part in torch.split(x_THD, counts))


def _attend(q_BQHD: torch.Tensor, keys: list[torch.Tensor], values: list[torch.Tensor]) -> torch.Tensor:
    rows, (first_keys, *later_keys), (first_values, *later_values) = q_BQHD.shape[1], keys, values
    pairs = first_keys.shape[1]
    scores_BHQP = torch.einsum("bqhd,bphd->bhqp", q_BQHD, first_keys)
    hidden_QP = torch.ones(rows, pairs, dtype=torch.bool, device=q_BQHD.device).triu_(1)
    own = [torch.einsum("bqhd,bqhd->bhq", q_BQHD, later[:, :rows]).unsqueeze(-1) for later in later_keys]
    weights = functional.softmax(torch.cat((scores_BHQP.masked_fill(hidden_QP, -torch.inf), *own), dim=-1), dim=-1)
    out_BQHD = torch.einsum("bhqp,bphd->bqhd", weights[..., :pairs], first_values)
    for index, later in enumerate(later_values):
        out_BQHD = out_BQHD + weights[..., pairs + index].transpose(1, 2).unsqueeze(-1) * later[:, :rows]
    return out_BQHD
