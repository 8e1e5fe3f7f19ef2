"""Where weights come from: safetensors files, or a seed.

Invariant: tensors arrive in the dtype and on the device that the source was opened for, with the shape asked for.
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open

from decoding.errors import ModelLoadError

_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"


class TensorSource(Protocol):
    """Named tensors, each taken once."""

    @property
    def parameters(self) -> int:
        """Number of weights taken so far."""
        ...

    def take(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """The tensor called ``name``; raises ModelLoadError where it is missing or has another shape."""
        ...

    def skip(self, name: str) -> None:
        """Declare that ``name``, should it exist, is not needed."""
        ...

    def finish(self) -> None:
        """Raise ModelLoadError where tensors were neither taken nor skipped."""
        ...


class Checkpoint:
    """The safetensors files of a model directory, one or several shards."""

    def __init__(self, directory: Path, dtype: torch.dtype, device: torch.device) -> None:
        self._directory = directory
        self._dtype = dtype
        self._device = device
        self._files = {path: _open(path) for path in _shards(directory)}
        self._left = {name: file for file in self._files.values() for name in file.keys()}  # noqa: SIM118 (no dict)
        self.parameters = 0

    def take(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """See `TensorSource`."""
        if name not in self._left:
            raise ModelLoadError(
                f"{self._directory}: tensor {name!r} is missing; does config.json belong to the weights?"
            )
        tensor: torch.Tensor = self._left.pop(name).get_tensor(name)
        if tuple(tensor.shape) != shape:
            raise ModelLoadError(
                f"{self._directory}: tensor {name!r} has shape {tuple(tensor.shape)}, config.json asks for {shape}"
            )
        self.parameters += tensor.numel()
        return tensor.to(self._device, self._dtype)

    def skip(self, name: str) -> None:
        """See `TensorSource`."""
        self._left.pop(name, None)

    def finish(self) -> None:
        """See `TensorSource`."""
        if self._left:
            names = sorted(self._left)
            shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
            raise ModelLoadError(
                f"{self._directory}: the weights hold tensors that the model does not use: {shown}; "
                "does config.json belong to them?"
            )


class RandomTensors:
    """Seeded random weights: a tensor depends on seed, name, shape and kind of device, not on the order of reading.

    Matrices have variance 1 / columns, so that activations keep their size from layer to layer; norms are 1.
    """

    def __init__(self, seed: int, dtype: torch.dtype, device: torch.device) -> None:
        self._seed = seed
        self._dtype = dtype
        self._device = device
        self.parameters = 0

    def take(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """See `TensorSource`."""
        self.parameters += math.prod(shape)
        if name.endswith("norm.weight"):
            return torch.ones(shape, dtype=self._dtype, device=self._device)
        digest = hashlib.sha256(f"{self._seed}:{name}".encode()).digest()
        generator = torch.Generator(self._device).manual_seed(int.from_bytes(digest[:8], "little") >> 1)
        values = torch.randn(shape, generator=generator, device=self._device).mul_(math.sqrt(1 / shape[-1]))
        return values.to(self._dtype)

    def skip(self, name: str) -> None:
        """Nothing exists before it is taken."""

    def finish(self) -> None:
        """Nothing is left over."""


def _shards(directory: Path) -> list[Path]:
    if (directory / _SINGLE).is_file():
        return [directory / _SINGLE]
    index = directory / _INDEX
    if not index.is_file():
        raise ModelLoadError(
            f"{directory} holds neither {_SINGLE} nor {_INDEX}; convert the weights to safetensors, or start with "
            "random ones (load format 'dummy')"
        )
    try:
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelLoadError(f"{index} cannot be read ({error}); fetch it again") from error
    return [directory / name for name in sorted(names)]


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except FileNotFoundError as error:
        raise ModelLoadError(f"{path} is named in {_INDEX} but does not exist; fetch it again") from error
    except (SafetensorError, OSError) as error:
        raise ModelLoadError(f"{path} is damaged ({error}); delete it and fetch it again") from error
