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
        """Begin the next step with so many rows of each text, the first ones of the step before."""
        assert not self._counts or all(now <= then for now, then in zip(counts, self._counts[-1], strict=True))
        self._counts.append(list(counts))
        return self

    def attend(
        self, layer: int, q_THD: torch.Tensor, k_TKD: torch.Tensor, v_TKD: torch.Tensor, scale: float
    ) -> torch.Tensor:
        """See `PassAttention`."""
        counts, per_kv = self._counts[-1], q_THD.shape[1] // k_TKD.shape[1]
        self._keys[layer].append(torch.split(k_TKD.repeat_interleave(per_kv, dim=1), counts))
        self._values[layer].append(torch.split(v_TKD.repeat_interleave(per_kv, dim=1), counts))
        outputs = []
        for text, q_QHD in enumerate(torch.split(q_THD, counts)):
            keys = [step[text] for step in self._keys[layer]]
            values = [step[text] for step in self._values[layer]]
            outputs.append(_attend(q_QHD * scale, keys, values))
        return torch.cat(outputs)


def _attend(q_QHD: torch.Tensor, keys: list[torch.Tensor], values: list[torch.Tensor]) -> torch.Tensor:
    rows, (first_keys, *later_keys), (first_values, *later_values) = len(q_QHD), keys, values
    scores_HQP = torch.einsum("qhd,phd->hqp", q_QHD, first_keys)
    hidden_QP = torch.ones(rows, len(first_keys), dtype=torch.bool, device=q_QHD.device).triu_(1)
    own = [torch.einsum("qhd,qhd->hq", q_QHD, later[:rows]).unsqueeze(-1) for later in later_keys]
    weights = functional.softmax(torch.cat((scores_HQP.masked_fill(hidden_QP, -torch.inf), *own), dim=-1), dim=-1)
    pairs = len(first_keys)
    out_QHD = torch.einsum("hqp,phd->qhd", weights[..., :pairs], first_values)
    for index, later in enumerate(later_values):
        out_QHD = out_QHD + weights[..., pairs + index].transpose(0, 1).unsqueeze(-1) * later[:rows]
    return out_QHD
