"""Chooses an attention backend by name.

Invariant: the only place that knows which backends exist and where they run.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import torch

from decoding.errors import ModelLoadError
from engine.attention.base import AttentionBackend
from engine.attention.reference import ReferenceAttention

_BACKENDS: MappingProxyType[str, tuple[Callable[[], AttentionBackend[Any]], frozenset[str]]] = MappingProxyType(
    {"reference": (ReferenceAttention, frozenset({"cpu", "cuda"}))}
)
"""Fastest first: constructor and device types."""

ATTENTION_CHOICES = ("auto", *_BACKENDS)


def make_attention(name: str, device: torch.device) -> AttentionBackend[Any]:
    """The backend called ``name``, one of `ATTENTION_CHOICES`; ``auto`` takes the fastest that runs on ``device``.

    Raises ModelLoadError where the name does not exist or its backend does not run on the device.
    """
    if name not in ATTENTION_CHOICES:
        raise ModelLoadError(f"attention backend {name!r} does not exist; choose one of {', '.join(ATTENTION_CHOICES)}")
    fitting = [choice for choice, (_, device_types) in _BACKENDS.items() if device.type in device_types]
    if not fitting or name not in ("auto", *fitting):
        raise ModelLoadError(
            f"attention backend {name!r} does not run on {device.type}; there, choose one of: {', '.join(fitting)}"
        )
    make, _ = _BACKENDS[fitting[0] if name == "auto" else name]
    return make()
