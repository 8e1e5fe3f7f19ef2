"""The most likely legal tokens of rows of draft logits, and the distributions that guesses are drawn from.

Invariant: probabilities are renormalised over the legal tokens of the draft vocabulary, so that children of a node
compare with those of others whatever the grammar leaves; an illegal token is never returned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from decoding.distribution import Distribution
from decoding.masks import MaskRow, unpack


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """A token of the target's vocabulary with its natural log-probability in the draft's legal distribution."""

    token: int
    logprob: float


class DraftVocabulary:
    """Which tokens a row of draft logits speaks of."""

    def __init__(self, vocab_size: int, target_ids: torch.Tensor | None, *, num_tokens: int | None = None) -> None:
        """The vocabulary of a head.

        Args:
            vocab_size: V, the width of the target's logits.
            target_ids: int64 [Vd], None where draft ids are target ids.
            num_tokens: the tokenizer's true size, where V is padded past it.
        """
        self._vocab_size = vocab_size
        self._target_ids: npt.NDArray[np.int64] | None = None if target_ids is None else target_ids.cpu().numpy()
        ids = np.arange(vocab_size) if self._target_ids is None else self._target_ids
        self._real = ids < (vocab_size if num_tokens is None else num_tokens)
        self._is_padded = not bool(self._real.all())

    def most_likely(
        self, logits_RV: torch.Tensor, masks: Sequence[MaskRow | None], widths: Sequence[int]
    ) -> list[list[Guess]]:
        """For each row its at most ``widths[row]`` best legal tokens, best first; one transfer from the device.

        A row has fewer where fewer are legal, and none where no legal token is in the draft vocabulary or its logits
        are not finite.
        """
        wide_RV = self._masked(logits_RV.to(torch.promote_types(logits_RV.dtype, torch.float32)), masks)
        best = torch.topk(wide_RV, min(max(widths), wide_RV.shape[1]), dim=-1)
        logprobs_RK = best.values - torch.logsumexp(wide_RV, dim=-1, keepdim=True)
        # Token ids are exact in float64, and one copy waits for the device once.
        ids_RK, logprobs = torch.stack((best.indices.double(), logprobs_RK.double())).cpu().numpy()
        tokens_RK = self._in_target(ids_RK.astype(np.int64))
        return [
            [
                Guess(token=int(token), logprob=min(float(logprob), 0.0))  # rounding can pass 0
                for token, logprob in zip(tokens_RK[row, :width], logprobs[row, :width], strict=True)
                if np.isfinite(logprob)
            ]
            for row, width in enumerate(widths)
        ]

    def distributions(
        self, logits_RV: torch.Tensor, masks: Sequence[MaskRow | None], temperatures: Sequence[float]
    ) -> list[Distribution | None]:
        """For each row the softmax of its legal logits at its temperature, above 0; one transfer from the device.

        None where no legal token is in the draft vocabulary or the logits are not finite.
        """
        rows_RV = self._masked(logits_RV.double(), masks).cpu().numpy()
        return [self._distribution(*row) for row in zip(rows_RV, temperatures, strict=True)]

    def _distribution(self, logits_V: npt.NDArray[np.float64], temperature: float) -> Distribution | None:
        largest = logits_V.max()
        if not np.isfinite(largest):
            return None
        with np.errstate(over="ignore"):  # what overflows becomes -inf: its probability is 0
            weights_V = np.exp((logits_V - largest) / temperature)
        ids_C = np.flatnonzero(weights_V)
        tokens_C, weights_C = self._in_target(ids_C), weights_V[ids_C]
        if self._target_ids is not None:
            ascending = np.argsort(tokens_C)
            tokens_C, weights_C = tokens_C[ascending], weights_C[ascending]
        return Distribution.of(tokens_C, weights_C)

    def _masked(self, logits_RV: torch.Tensor, masks: Sequence[MaskRow | None]) -> torch.Tensor:
        if not self._is_padded and all(mask is None for mask in masks):
            return logits_RV
        legal_RV = torch.from_numpy(np.stack([self._legal(mask) for mask in masks]))
        return logits_RV.masked_fill(~legal_RV.to(logits_RV.device), -torch.inf)

    def _legal(self, mask: MaskRow | None) -> npt.NDArray[np.bool_]:
        if mask is None:
            return self._real
        legal_V = unpack(mask.bits_W, self._vocab_size)
        return legal_V if self._target_ids is None else legal_V[self._target_ids]

    def _in_target(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return ids if self._target_ids is None else self._target_ids[ids]
