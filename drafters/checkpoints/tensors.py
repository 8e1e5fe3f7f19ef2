"""The tensors of a head's directory, from safetensors or torch files, one or several shards.

Invariant: no pickled code is ever run, and no tensor is handed out with a shape that was not asked for.
"""

from __future__ import annotations

import json
import pickle
import zipfile
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from decoding.errors import ModelLoadError

_NAMES = (
    "model.safetensors",
    "pytorch_model.bin",
    "medusa_lm_head.safetensors",
    "medusa_lm_head.pt",
)
_INDICES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)

Rename = Callable[[str], Iterable[str]]
"""From a parameter's name to the names that files may give it, the usual one first."""


class HeadTensors:
    """Named tensors, each taken once."""

    def __init__(self, directory: Path) -> None:
        """Open the files of ``directory``; raises ModelLoadError where there are none, or one is damaged."""
        self.directory = directory
        self._left: dict[str, Callable[[], torch.Tensor]] = {}
        for path in _files(directory):
            self._left.update(_open_safetensors(path) if path.suffix == ".safetensors" else _open_torch(path))

    @property
    def names(self) -> frozenset[str]:
        """Names that were not taken yet."""
        return frozenset(self._left)

    def take(self, names: Iterable[str], shape: tuple[int, ...]) -> torch.Tensor:
        """The first tensor that exists among ``names``; raises ModelLoadError where none does, or its shape differs."""
        names = tuple(names)
        name = next((name for name in names if name in self._left), None)
        if name is None:
            raise ModelLoadError(
                f"{self.directory}: tensor {' or '.join(map(repr, names))} is missing; fetch the head again, or check "
                "that its config.json belongs to the weights"
            )
        tensor = self._left.pop(name)()
        if tuple(tensor.shape) != shape:
            raise ModelLoadError(
                f"{self.directory}: tensor {name!r} has shape {tuple(tensor.shape)}, but config.json and the target "
                f"model ask for {shape}; use a head that was trained for this target"
            )
        return tensor

    def fill(self, module: nn.Module, rename: Rename, dtype: torch.dtype, device: torch.device) -> None:
        """Read every parameter of a module that was made on the meta device."""
        state = {}
        for name, parameter in module.state_dict().items():
            names = tuple(rename(name))
            tensor = self.take(names, tuple(parameter.shape))
            if tensor.dtype not in _FLOATS:
                raise ModelLoadError(
                    f"{self.directory}: tensor {names[0]!r} is {tensor.dtype}; use the head's unquantised checkpoint"
                )
            state[name] = tensor.to(device, dtype)
        module.load_state_dict(state, assign=True)
        module.requires_grad_(requires_grad=False)

    def skip(self, unneeded: Callable[[str], bool]) -> None:
        """Declare that tensors with such names, should they exist, are not needed."""
        self._left = {name: read for name, read in self._left.items() if not unneeded(name)}

    def finish(self, kind: str) -> None:
        """Raise ModelLoadError where tensors were neither taken nor skipped."""
        if self._left:
            names = sorted(self._left)
            shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
            raise ModelLoadError(
                f"{self.directory}: the files hold tensors that a head of kind {kind!r} does not use: {shown}; check "
                "that its config.json belongs to the weights"
            )


def as_is(name: str) -> tuple[str, ...]:
    """The `Rename` of files that name parameters as the module does."""
    return (name,)


def _files(directory: Path) -> list[Path]:
    if not directory.is_dir():
        raise ModelLoadError(f"{directory} is no directory; name the directory that holds the head's config.json")
    for name in _INDICES:
        if (directory / name).is_file():
            return _shards(directory / name)
    for name in _NAMES:
        if (directory / name).is_file():
            return [directory / name]
    raise ModelLoadError(f"{directory} holds no weights of a head: none of {', '.join((*_NAMES, *_INDICES))}")


def _shards(index: Path) -> list[Path]:
    try:
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelLoadError(f"{index} cannot be read ({error}); fetch it again") from error
    missing = sorted(name for name in names if not (index.parent / name).is_file())
    if missing:
        raise ModelLoadError(f"{index} names {missing[0]}, which does not exist; fetch it again")
    return [index.parent / name for name in sorted(names)]


def _open_safetensors(path: Path) -> dict[str, Callable[[], torch.Tensor]]:
    try:
        file: Any = safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise ModelLoadError(f"{path} is truncated or damaged ({error}); fetch it again") from error
    return {name: _Read(file, name) for name in file.keys()}  # noqa: SIM118 (no dict)


def _open_torch(path: Path) -> dict[str, Callable[[], torch.Tensor]]:
    try:
        # Files in the old format cannot be mapped into memory.
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except pickle.UnpicklingError as error:
        raise ModelLoadError(
            f"{path} is truncated, or holds more than tensors, which is never run; fetch it again, or save its tensors "
            f"as safetensors ({str(error).splitlines()[0]})"
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError) as error:
        raise ModelLoadError(f"{path} is truncated or damaged ({error}); fetch it again") from error
    if not isinstance(content, Mapping) or not all(isinstance(value, torch.Tensor) for value in content.values()):
        raise ModelLoadError(f"{path} must hold a state dict, names to tensors; save the head's state_dict()")
    return {name: partial(_loaded, value) for name, value in content.items()}


def _loaded(value: torch.Tensor) -> torch.Tensor:
    return value


class _Read:
    """A tensor of a safetensors file, read when it is taken."""

    def __init__(self, file: Any, name: str) -> None:
        self._file = file
        self._name = name

    def __call__(self) -> torch.Tensor:
        tensor: torch.Tensor = self._file.get_tensor(self._name)
        return tensor
