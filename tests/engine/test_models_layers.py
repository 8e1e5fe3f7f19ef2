from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from engine.loading.directory import read_directory
from engine.loading.weights import load_model
from engine.models.layers import Linear, RMSNorm
from engine.models.rope import Rope, rotate
from tests.paged import PagedRunner, PagedText, Part, forward_input


def slow_rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x / torch.sqrt((x * x).mean(dim=-1, keepdim=True) + eps) * weight


@settings(max_examples=50, deadline=None)
@given(
    rows=st.integers(1, 5),
    size=st.sampled_from([1, 3, 16, 576]),
    scale=st.sampled_from([0.0, 1e-4, 1.0, 1e4]),
    eps=st.sampled_from([1e-6, 1e-5, 1e-2]),
    seed=st.integers(0, 1 << 20),
)
def test_rms_norm_equals_formula(rows, size, scale, eps, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, size, generator=generator, dtype=torch.float64) * scale
    weight = torch.randn(size, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(RMSNorm(weight, eps)(x), slow_rms_norm(x, weight, eps), atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rms_norm_in_low_precision_rounds_once(dtype):
    x, weight = torch.randn(4, 64).to(dtype), torch.randn(64).to(dtype)
    got = RMSNorm(weight, 1e-5)(x)
    assert got.dtype == dtype
    exact = slow_rms_norm(x.double(), weight.double(), 1e-5)
    limits = torch.finfo(dtype)
    spacing = limits.eps * torch.exp2(torch.floor(torch.log2(exact.abs()))).clamp_min(limits.smallest_normal)
    assert ((got.double() - exact).abs() <= 0.51 * spacing).all()


def test_rms_norm_with_a_weight_for_each_head():
    x, weight = torch.randn(3, 4, 8, dtype=torch.float64), torch.randn(4, 8, dtype=torch.float64)
    torch.testing.assert_close(RMSNorm(weight, 1e-5)(x), slow_rms_norm(x, weight, 1e-5))


def test_linear():
    weight, bias, x = torch.randn(3, 2), torch.randn(3), torch.randn(5, 2)
    torch.testing.assert_close(Linear(weight, bias)(x), x @ weight.T + bias)
    torch.testing.assert_close(Linear(weight)(x), x @ weight.T)


@settings(max_examples=30, deadline=None)
@given(position=st.integers(0, 100_000), seed=st.integers(0, 1 << 20))
def test_rotation_is_multiplication_of_complex_numbers(position, seed):
    generator = torch.Generator().manual_seed(seed)
    frequencies = torch.rand(4, generator=generator)
    x = torch.randn(1, 2, 8, generator=generator, dtype=torch.float64)
    rope = Rope(inverse_frequencies=frequencies, magnitude=1.5)
    got = rotate(x, *rope.rotation(torch.tensor([position]), torch.float64))
    turned = torch.complex(x[..., :4], x[..., 4:]) * torch.polar(
        torch.full((4,), 1.5, dtype=torch.float64), position * frequencies.double()
    )
    torch.testing.assert_close(got, torch.cat((turned.real, turned.imag), dim=-1))


class OperatorCount(TorchDispatchMode):
    """Counts operators that compute or copy; views are free."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += not func.is_view
        return func(*args, **(kwargs or {}))


def test_a_layer_of_a_decode_step_takes_few_operators(tiny_model_dir):
    """4 matrix products, 8 for two norms, 3 to rotate, 2 stores, 3 to attend, 2 for the gate, 2 residuals."""
    counts = {}
    for layers in (2, 4):
        files = read_directory(tiny_model_dir(num_hidden_layers=layers), "tiny")
        runner = PagedRunner(load_model(files, dtype=torch.float32, device=torch.device("cpu")))
        texts = [PagedText() for _ in range(3)]
        runner.step(*(Part(text, [5, 6, 7]) for text in texts))
        batch = forward_input([Part(text, [8]) for text in texts], runner.model.device)
        with OperatorCount() as operators:
            runner.model.hidden(batch, runner.cache)
        counts[layers] = operators.count
    assert (counts[4] - counts[2]) / 2 <= 24


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_a_single_row_equals_the_row_in_a_matrix_product(dtype, bias):
    """The single row of bfloat16 takes its own way on a CPU."""
    weight, x = torch.randn(48, 64).to(dtype), torch.randn(3, 64).to(dtype)
    linear = Linear(weight, torch.randn(48).to(dtype) if bias else None)
    alone = torch.cat([linear(x[row : row + 1]) for row in range(3)])
    # bfloat16 rounds the product and then the sum with the bias; a row of 64 standard normal products is about 8 large.
    tolerance = {"atol": 0.07, "rtol": 0.02} if dtype == torch.bfloat16 else {}
    torch.testing.assert_close(alone, linear(x), **tolerance)
