"""A tiny target, head files under public names, and their plain twins."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

from drafters.heads.target import TargetModel
from tests.head_files import DRAFT_VOCAB, KINDS, TARGET_LAYERS, VOCAB, WIDE, HeadFiles, make_files
from tests.plain_head import PlainHead, Text, make_text


@pytest.fixture(scope="session")
def target() -> TargetModel:
    source = torch.Generator().manual_seed(1)
    embedding = torch.randn(VOCAB, WIDE, generator=source, dtype=torch.float64)
    output = torch.randn(VOCAB, WIDE, generator=source, dtype=torch.float64) / math.sqrt(WIDE)
    return TargetModel(
        name="tiny-target",
        model_type="llama",
        hidden_size=WIDE,
        vocab_size=VOCAB,
        num_layers=TARGET_LAYERS,
        dtype=torch.float64,
        device=torch.device("cpu"),
        embed=lambda tokens_T: embedding[tokens_T],
        logits=lambda hidden_RE: hidden_RE @ output.T,
    )


@pytest.fixture(scope="session")
def files() -> Callable[..., HeadFiles]:
    return make_files


@pytest.fixture(scope="session")
def plain() -> type[PlainHead]:
    return PlainHead


@pytest.fixture(scope="session")
def text_of() -> Callable[[int, int], Text]:
    return make_text


@pytest.fixture(scope="session", params=KINDS)
def head_files(request: pytest.FixtureRequest) -> HeadFiles:
    return make_files(request.param)


@pytest.fixture(scope="session")
def sizes() -> SimpleNamespace:
    return SimpleNamespace(vocab=VOCAB, draft_vocab=DRAFT_VOCAB, wide=WIDE, layers=TARGET_LAYERS)
