"""What "auto" means on this machine: device, compute dtype, threads, token budget.

Invariant: functions of the configuration and the machine; only `compute_threads` changes anything.
"""

from __future__ import annotations

import torch

from decoding.errors import ModelLoadError
from engine.config import DType, EngineConfig
from engine.threads import ComputeThreads

_NATIVE_BFLOAT16 = ("avx512_bf16", "amx_bf16", "bf16")
_CPU_BATCH_TOKENS = 256
_GPU_BATCH_TOKENS = 2048
_AMPERE = 8


def resolve_device(name: str) -> torch.device:
    """The device called ``name``; "auto" is cuda where there is one. Raises ModelLoadError where it cannot be used."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as problem:
        raise ModelLoadError(f"device {name!r} does not exist; use auto, cpu, cuda or cuda:N") from problem
    if device.type not in ("cpu", "cuda"):
        raise ModelLoadError(f"device {name!r} is not supported; use auto, cpu, cuda or cuda:N")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ModelLoadError(f"device {name!r} is not there: this torch sees no GPU; use --device cpu")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ModelLoadError(f"device {name!r} is not there: this machine has {torch.cuda.device_count()} GPUs")
    return device


def resolve_dtype(name: DType, device: torch.device) -> torch.dtype:
    """The dtype called ``name``; "auto" is bfloat16 where the device computes it natively, else float32."""
    if name != "auto":
        dtype = getattr(torch, name)
        assert isinstance(dtype, torch.dtype)
        return dtype
    if device.type == "cuda":
        native = torch.cuda.get_device_capability(device)[0] >= _AMPERE
    else:
        capabilities = torch.cpu.get_capabilities()
        native = any(capabilities.get(name, False) for name in _NATIVE_BFLOAT16)
    return torch.bfloat16 if native else torch.float32


def compute_threads(config: EngineConfig, device: torch.device) -> ComputeThreads | None:
    """Set the threads that compute on a CPU: the flag's number for good, else up to the physical cores, adapted."""
    if device.type != "cpu":
        return None
    if config.threads is not None:
        torch.set_num_threads(config.threads)
        return None
    most = int(torch.cpu.get_capabilities().get("num_physical_cores", torch.get_num_threads()))
    return ComputeThreads(most, torch.set_num_threads)


def batch_tokens(config: EngineConfig, device: torch.device) -> int:
    """Token budget of one step, at least one per running sequence."""
    budget = config.max_batch_tokens or (_GPU_BATCH_TOKENS if device.type == "cuda" else _CPU_BATCH_TOKENS)
    return max(budget, config.max_running)
