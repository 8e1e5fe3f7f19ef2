"""What the pipeline takes from the logits tensor: best tokens, short lists, whole rows; nothing else leaves the device.

On a CPU numpy reads the tensor's memory in place (its argmax and sort of one vocabulary-wide row take a tenth of
torch's time or less); elsewhere torch answers on the device, one transfer per question. Invariant: the caller's tensor
is never written; float16 and bfloat16 are read as float32, exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

Ids = npt.NDArray[np.int64]
Logits = npt.NDArray[np.floating]


class LogitsReader(Protocol):
    """Reads rows of one logits tensor, by index; values come as float32, or float64 where the tensor is that."""

    def best(self, rows: Sequence[int]) -> list[tuple[int, float]]:
        """Per row the id and value of its largest logit: the lowest id among equals, a NaN before all others."""
        ...

    def gather(self, rows: Sequence[int], ids: Sequence[Ids]) -> list[Logits]:
        """Per row the logits of its ids, as arrays of the caller's own."""
        ...

    def copies(self, rows: Sequence[int]) -> Iterator[Logits]:
        """Per row all its logits, as a writable array of the caller's own."""
        ...


def read_logits(logits_RV: torch.Tensor, vocab_size: int) -> LogitsReader:
    """The reader for the tensor's device and dtype, of its first ``vocab_size`` columns."""
    if logits_RV.device.type == "cpu" and logits_RV.dtype in (torch.float32, torch.float64):
        return ArrayReader(logits_RV.detach().numpy()[:, :vocab_size])
    return TensorReader(logits_RV.detach()[:, :vocab_size])


class ArrayReader:
    """Reads host memory in place."""

    def __init__(self, logits_RV: Logits) -> None:
        self._logits_RV = logits_RV

    def best(self, rows: Sequence[int]) -> list[tuple[int, float]]:
        """See `LogitsReader`."""
        return [self._best(self._logits_RV[row]) for row in rows]

    def gather(self, rows: Sequence[int], ids: Sequence[Ids]) -> list[Logits]:
        """See `LogitsReader`."""
        return [self._logits_RV[row].take(tokens) for row, tokens in zip(rows, ids, strict=True)]

    def copies(self, rows: Sequence[int]) -> Iterator[Logits]:
        """See `LogitsReader`."""
        return (self._logits_RV[row].copy() for row in rows)

    @staticmethod
    def _best(logits_V: Logits) -> tuple[int, float]:
        token = int(logits_V.argmax())
        return token, float(logits_V[token])


class TensorReader:
    """Asks torch on the tensor's device; one transfer per call."""

    def __init__(self, logits_RV: torch.Tensor) -> None:
        self._logits_RV = logits_RV

    def best(self, rows: Sequence[int]) -> list[tuple[int, float]]:
        """See `LogitsReader`."""
        values_R, ids_R = self._take(rows).max(dim=-1)
        return list(zip(ids_R.tolist(), values_R.tolist(), strict=True))

    def gather(self, rows: Sequence[int], ids: Sequence[Ids]) -> list[Logits]:
        """See `LogitsReader`."""
        lengths = [len(tokens) for tokens in ids]
        pairs_2N = np.stack([np.repeat(np.asarray(rows, np.int64), lengths), np.concatenate(ids)])
        row_N, id_N = torch.from_numpy(pairs_2N).to(self._logits_RV.device)
        values_N = _to_host(self._logits_RV[row_N, id_N])
        return np.split(values_N, np.cumsum(lengths)[:-1])

    def copies(self, rows: Sequence[int]) -> Iterator[Logits]:
        """See `LogitsReader`."""
        return iter(_to_host(self._take(rows)))

    def _take(self, rows: Sequence[int]) -> torch.Tensor:
        if list(rows) == list(range(len(self._logits_RV))):
            return self._logits_RV
        return self._logits_RV[torch.tensor(rows, dtype=torch.int64, device=self._logits_RV.device)]


def _to_host(logits: torch.Tensor) -> Logits:
    """A host copy of the tensor, in float32 unless it is float64."""
    widened = logits if logits.dtype == torch.float64 else logits.float()
    return np.array(widened.cpu().numpy())
