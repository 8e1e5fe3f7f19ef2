"""The two building blocks of a decoder layer that carry weights.

Invariant: a row of the output depends on the same row of the input alone (up to the rounding of a matrix product, whose
order of additions may change with the number of rows).
"""

from __future__ import annotations

import math

import torch
from torch.nn import functional


class Linear:
    """``x W^T + b`` without the bookkeeping of a torch module.

    On a CPU, bfloat16 products repack their weights on every call, which for a single row costs more than the product:
    the default model's linears took 20.5 ms that way and 14.2 as matrix-vector products, which read them as they are.
    """

    __slots__ = ("_bias", "_repacks", "_weight")

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self._weight = weight
        self._bias = bias
        self._repacks = weight.dtype == torch.bfloat16 and weight.device.type == "cpu"

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[T, in] to [T, out]."""
        if self._repacks and len(x) == 1:
            out = torch.mv(self._weight, x[0])
            return (out if self._bias is None else out.add_(self._bias)).unsqueeze(0)
        return functional.linear(x, self._weight, self._bias)


class RMSNorm:
    """``x / sqrt(mean(x^2) + eps) * weight`` over the last dimension (Zhang & Sennrich 2019), in at least float32.

    ``weight`` is [E], or [H, E] where each head has its own. torch's rms_norm is one kernel on CUDA but eight operators
    on CPU. There, four do, because with n = |x| the root is ``hypot(n, sqrt(E eps)) / sqrt(E)``.
    """

    __slots__ = ("_eps", "_floor", "_scaled_weight", "_weight")

    def __init__(self, weight: torch.Tensor, eps: float) -> None:
        size = weight.shape[-1]
        wide = torch.promote_types(weight.dtype, torch.float32)
        self._weight = weight
        self._eps = eps
        self._scaled_weight = weight.to(wide) * math.sqrt(size)
        self._floor = torch.tensor(math.sqrt(size * eps), dtype=wide, device=weight.device)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The same shape and dtype, normalised."""
        if x.is_cuda:
            return functional.rms_norm(x, x.shape[-1:], None, self._eps) * self._weight
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=self._floor.dtype)
        return x.div(torch.hypot(length, self._floor)).mul_(self._scaled_weight).to(x.dtype)
