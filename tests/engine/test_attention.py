from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.errors import ModelLoadError
from engine.attention import layout as layout_module
from engine.attention import reference as reference_module
from engine.attention.factory import ATTENTION_CHOICES, make_attention
from engine.attention.layout import MAX_PADDED_QUERIES, padded_keys
from engine.attention.reference import ReferenceAttention
from engine.forward import ForwardInput
from engine.kv_cache import BLOCK_SIZE
from tests.paged import PagedText, Part, forward_input

CPU = torch.device("cpu")


@dataclass
class Problem:
    batch: ForwardInput
    q_THD: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor


def slow_attend(problem: Problem, *, scale: float, window: int | None, softcap: float | None = None) -> torch.Tensor:
    """Token by token, key by key, in float64, straight from the visibility rule of `engine.forward`."""
    batch, out = problem.batch, []
    keys, values = (cache.flatten(0, 1).double() for cache in (problem.keys, problem.values))
    per_kv = problem.q_THD.shape[1] // keys.shape[1]
    for sequence in range(batch.num_sequences):
        start, stop = batch.starts[sequence], batch.starts[sequence + 1]
        context, parents = batch.context_lens[sequence], batch.parents[sequence]
        table = batch.block_tables_SB[sequence].tolist()
        for row in range(start, stop):
            position = int(batch.positions_T[row])
            seen = [(i, table[i // BLOCK_SIZE] * BLOCK_SIZE + i % BLOCK_SIZE) for i in range(context)]
            node = row - start
            while node >= 0:
                seen.append((int(batch.positions_T[start + node]), int(batch.slots_T[start + node])))
                node = parents[node] if parents is not None else node - 1
            slots = [slot for at, slot in seen if window is None or at > position - window]
            heads = []
            for head in range(problem.q_THD.shape[1]):
                kv = head // per_kv
                query = problem.q_THD[row, head].double()
                scores = [float(query @ keys[slot, kv]) * scale for slot in slots]
                if softcap is not None:
                    scores = [softcap * math.tanh(score / softcap) for score in scores]
                top = max(scores)
                weights = [math.exp(score - top) for score in scores]
                total = sum(weights)
                heads.append(sum(w / total * values[slot, kv] for w, slot in zip(weights, slots, strict=True)))
            out.append(torch.stack(heads))
    return torch.stack(out)


def make_problem(
    shapes: list[tuple[int, int | tuple[int, ...]]],
    *,
    num_kv: int = 2,
    per_kv: int = 2,
    head_dim: int = 8,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    spare: int = 3,
) -> Problem:
    """One sequence per shape: context length, and the length of a chain or the parents of a tree."""
    generator = torch.Generator().manual_seed(seed)
    counts = [new if isinstance(new, int) else len(new) for _, new in shapes]
    needed = [-(-(context + count) // BLOCK_SIZE) for (context, _), count in zip(shapes, counts, strict=True)]
    blocks = torch.randperm(sum(needed) + spare, generator=generator).tolist()
    parts = []
    for (context, new), count, number in zip(shapes, counts, needed, strict=True):
        text = PagedText(computed=context, table=[blocks.pop() for _ in range(number)])
        parts.append(Part(text, [0] * count, None if isinstance(new, int) else new))
    batch = forward_input(parts, CPU)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    cache = (sum(needed) + spare, BLOCK_SIZE, num_kv, head_dim)
    keys, values = random(*cache), random(*cache)
    owned = torch.zeros(cache[0] * BLOCK_SIZE, dtype=torch.bool)
    for part in parts:
        for index in range(part.text.computed + len(part.tokens)):
            owned[part.text.table[index // BLOCK_SIZE] * BLOCK_SIZE + index % BLOCK_SIZE] = True
    # Slots that no sequence of the batch has filled hold what must never be read.
    keys.flatten(0, 1)[~owned] = torch.nan
    values.flatten(0, 1)[~owned] = torch.inf
    q_THD = random(sum(counts), num_kv * per_kv, head_dim)
    return Problem(batch, q_THD.to(dtype), keys.to(dtype), values.to(dtype))


def attend(problem: Problem, *, scale: float, window: int | None, softcap: float | None = None) -> torch.Tensor:
    backend = ReferenceAttention()
    plan = backend.plan(problem.batch)
    args = (plan, problem.q_THD, problem.keys, problem.values)
    first = backend.attend(*args, scale=scale, window=window, softcap=softcap)
    again = backend.attend(*args, scale=scale, window=window, softcap=softcap)
    assert torch.equal(first, again), "a second layer must not see what the first left behind"
    return first


@st.composite
def trees(draw: st.DrawFn) -> tuple[int, ...]:
    size = draw(st.integers(1, 12))
    return (-1, *(draw(st.integers(0, node - 1)) for node in range(1, size)))


new_tokens = st.one_of(st.just(1), st.integers(1, 20), st.integers(MAX_PADDED_QUERIES, 80), trees())
shapes = st.lists(st.tuples(st.integers(0, 100), new_tokens), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)
@given(
    shapes=shapes,
    num_kv=st.integers(1, 3),
    per_kv=st.integers(1, 3),
    window=st.one_of(st.none(), st.integers(1, 130)),
    softcap=st.one_of(st.none(), st.floats(0.5, 5.0)),
    seed=st.integers(0, 1 << 20),
)
def test_equals_slow_twin(shapes, num_kv, per_kv, window, softcap, seed):
    problem = make_problem(shapes, num_kv=num_kv, per_kv=per_kv, head_dim=4, seed=seed)
    got = attend(problem, scale=0.5, window=window, softcap=softcap)
    want = slow_attend(problem, scale=0.5, window=window, softcap=softcap)
    torch.testing.assert_close(got, want, atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 3e-2), (torch.float16, 4e-3)])
@pytest.mark.parametrize("softcap", [None, 2.0])
def test_lower_precision_is_close_to_slow_twin(dtype, tolerance, softcap):
    problem = make_problem([(40, 1), (3, (-1, 0, 0, 2)), (0, 70), (20, 66)], head_dim=16, dtype=dtype)
    for window in (None, 30):
        got = attend(problem, scale=0.25, window=window, softcap=softcap)
        want = slow_attend(problem, scale=0.25, window=window, softcap=softcap)
        assert got.dtype == dtype
        torch.testing.assert_close(got.double(), want, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("window", [None, 50, 300])
@pytest.mark.parametrize("softcap", [None, 2.0])
def test_chunks_of_many_tiles(monkeypatch, window, softcap):
    monkeypatch.setattr(reference_module, "_TILE", 24)
    problem = make_problem([(70, 100), (0, 90), (5, 2)], head_dim=4)
    got = attend(problem, scale=0.5, window=window, softcap=softcap)
    torch.testing.assert_close(got, slow_attend(problem, scale=0.5, window=window, softcap=softcap))


def test_memory_of_a_long_chunk_is_bounded():
    """No matrix of all queries times all keys is ever made."""
    problem = make_problem([(3000, 1500)], num_kv=1, per_kv=1, head_dim=4, dtype=torch.float32)
    backend = ReferenceAttention()
    plan = backend.plan(problem.batch)
    backend.attend(plan, problem.q_THD, problem.keys, problem.values, scale=1.0, window=None)
    assert max(mask.numel() for mask in plan._masks.values()) <= 256 * 4500


def test_decodes_of_like_length_are_one_call(monkeypatch):
    calls = []
    original = torch.nn.functional.scaled_dot_product_attention

    def counting(*args, **kwargs):
        calls.append(args[0].shape[0])
        return original(*args, **kwargs)

    monkeypatch.setattr(reference_module.functional, "scaled_dot_product_attention", counting)
    problem = make_problem([(129 + context, 1) for context in range(16)])
    backend = ReferenceAttention()
    backend.attend(backend.plan(problem.batch), problem.q_THD, problem.keys, problem.values, scale=1.0, window=None)
    assert calls == [16]


@pytest.fixture
def one_thread():
    """Some libraries split a product over threads by the number of matrices in it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("window", [None, 40, 150])
def test_a_sequence_is_bit_equal_alone_and_in_any_batch(dtype, window):
    shapes = [(50, 1), (300, 1), (90, (-1, 0, 0, 2, 1)), (40, 30), (0, 100), (33, 77), (61, 1), (310, (-1, 0))]
    problem = make_problem(shapes, head_dim=64, num_kv=3, per_kv=3, dtype=dtype)
    together = attend(problem, scale=0.125, window=window)
    batch = problem.batch
    for sequence in range(len(shapes)):
        rows = slice(batch.starts[sequence], batch.starts[sequence + 1])
        alone = ForwardInput(
            tokens_T=batch.tokens_T[rows],
            positions_T=batch.positions_T[rows],
            slots_T=batch.slots_T[rows],
            starts=(0, rows.stop - rows.start),
            context_lens=(batch.context_lens[sequence],),
            parents=(batch.parents[sequence],),
            block_tables_SB=batch.block_tables_SB[sequence : sequence + 1],
            rows_R=batch.rows_R[: rows.stop - rows.start],
        )
        single = Problem(alone, problem.q_THD[rows], problem.keys, problem.values)
        assert torch.equal(attend(single, scale=0.125, window=window), together[rows])


@given(keys=st.integers(1, 100_000))
def test_padding_is_at_most_half_past_the_smallest_size(keys):
    padded = padded_keys(keys)
    assert keys <= padded <= max(64, 1.5 * keys)
    assert padded_keys(padded) == padded


def test_ancestors_of_a_tree():
    ancestors, depths = layout_module._ancestors((-1, 0, 1, 0))
    assert depths.tolist() == [0, 1, 2, 1]
    assert ancestors.tolist() == [
        [True, False, False, False],
        [True, True, False, False],
        [True, True, True, False],
        [True, False, False, True],
    ]


def test_factory_names_the_choices():
    assert isinstance(make_attention("auto", CPU), ReferenceAttention)
    assert isinstance(make_attention("reference", CPU), ReferenceAttention)
    with pytest.raises(ModelLoadError, match="'flash' does not exist; choose one of auto, reference"):
        make_attention("flash", CPU)
    with pytest.raises(ModelLoadError, match="does not run on meta"):
        make_attention("reference", torch.device("meta"))
    assert ATTENTION_CHOICES == ("auto", "reference")
