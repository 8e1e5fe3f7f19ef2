from __future__ import annotations

import pytest
import torch

from decoding.errors import InvalidRequestError, ModelLoadError
from engine import memory
from engine.config import EngineConfig
from engine.device import batch_tokens, resolve_device, resolve_dtype
from engine.kv_cache import KVShape

CPU = torch.device("cpu")
SHAPES = (KVShape(num_heads=2, head_dim=4),) * 3
BLOCK_BYTES = 3 * 2 * 16 * 2 * 4 * 4  # layers, keys and values, slots, heads, size, float32


def blocks(config: EngineConfig, context_length: int = 64) -> int:
    return memory.num_blocks(config, shapes=SHAPES, dtype=torch.float32, device=CPU, context_length=context_length)


def test_the_flag_decides_and_is_rounded_up_to_blocks():
    assert blocks(EngineConfig(kv_cache_tokens=33)) == 3


def test_a_flag_that_asks_for_more_than_is_free_is_refused_with_both_numbers(monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda device: 3 * BLOCK_BYTES + 5)
    assert blocks(EngineConfig(kv_cache_tokens=48)) == 3
    with pytest.raises(
        ModelLoadError, match=r"--kv-cache-tokens 49 needs 12,288 bytes and 9,221 are free; .* 48 tokens"
    ):
        blocks(EngineConfig(kv_cache_tokens=49))


def test_a_share_of_free_memory_decides_up_to_what_the_batch_can_fill(monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda device: 10 * BLOCK_BYTES)
    assert blocks(EngineConfig(kv_memory_fraction=0.5, max_running=100)) == 5
    assert blocks(EngineConfig(kv_memory_fraction=0.5, max_running=1)) == 4  # 64 tokens of context


def test_too_little_memory_is_an_error_with_a_mend(monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda device: BLOCK_BYTES)
    with pytest.raises(ModelLoadError, match="--kv-memory-fraction"):
        blocks(EngineConfig(kv_memory_fraction=0.5))


def test_a_control_groups_limit_counts(tmp_path):
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("300\n")
    assert memory._cgroup_left(tmp_path) == [700]
    (tmp_path / "memory.max").write_text("max\n")
    assert memory._cgroup_left(tmp_path) == []
    assert memory._cgroup_left(tmp_path / "absent") == []


def test_free_memory_is_a_plausible_number():
    assert 0 < memory.free_bytes(CPU) < 1 << 44


@pytest.mark.parametrize("name", ["gpu", "mps", "cuda:99"])
def test_devices_that_cannot_be_used_are_named(name):
    with pytest.raises(ModelLoadError, match=name):
        resolve_device(name)


def test_dtype_auto_follows_the_cpu(monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    assert resolve_dtype("auto", CPU) is torch.bfloat16
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True})
    assert resolve_dtype("auto", CPU) is torch.float32
    assert resolve_dtype("float16", CPU) is torch.float16


def test_the_budget_has_room_for_every_running_sequence():
    assert batch_tokens(EngineConfig(), CPU) == 256
    assert batch_tokens(EngineConfig(max_running=300), CPU) == 300
    assert batch_tokens(EngineConfig(max_batch_tokens=8, max_running=2), CPU) == 8


@pytest.mark.parametrize(
    "fields",
    [
        {"max_running": 0},
        {"context_length": 2},
        {"kv_cache_tokens": 0},
        {"kv_memory_fraction": 0.0},
        {"watermark": 1.0},
    ],
)
def test_a_configuration_that_cannot_work_names_its_field(fields):
    with pytest.raises(InvalidRequestError, match=next(iter(fields))):
        EngineConfig(**fields)
