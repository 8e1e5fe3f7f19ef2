"""Medusa heads against the formula, in every layout of their files."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from decoding.errors import ModelLoadError
from drafters.checkpoints.load import detect_format, load_head
from drafters.checkpoints.medusa import write_medusa


def published(sizes, *, heads=3, blocks=2, output=True):
    source = torch.Generator().manual_seed(7)
    wide = sizes.wide
    tensors = {}
    for head in range(heads):
        for block in range(blocks):
            tensors[f"{head}.{block}.linear.weight"] = (
                torch.randn(wide, wide, generator=source, dtype=torch.float64) / 7
            )
            tensors[f"{head}.{block}.linear.bias"] = torch.randn(wide, generator=source, dtype=torch.float64)
        if output:
            tensors[f"{head}.{blocks}.weight"] = torch.randn(sizes.vocab, wide, generator=source, dtype=torch.float64)
    return tensors


def formula(tensors, head, blocks, x, output):
    for block in range(blocks):
        z = x @ tensors[f"{head}.{block}.linear.weight"].T + tensors[f"{head}.{block}.linear.bias"]
        x = x + z / (1 + torch.exp(-z))
    return output(x)


def check(heads, tensors, blocks, sizes, output_of):
    x = torch.randn(5, sizes.wide, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for head in range(heads.num_heads):
        torch.testing.assert_close(heads.logits(head, x), formula(tensors, head, blocks, x, output_of(head)))


def test_v01_counts_its_heads_itself(sizes, target, tmp_path):
    tensors = published(sizes)
    torch.save(tensors, tmp_path / "medusa_lm_head.pt")
    config = {
        "medusa_num_heads": 5,
        "medusa_num_layers": 1,
        "base_model_name_or_path": "tiny-target",
    }  # wrong, as published
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert detect_format(tmp_path) == "medusa"
    heads = load_head(tmp_path, target)
    assert (heads.num_heads, heads.num_blocks) == (3, 2)
    check(heads, tensors, 2, sizes, lambda head: lambda x: x @ tensors[f"{head}.2.weight"].T)
    write_medusa(tmp_path / "again", heads, target)
    written = torch.load(tmp_path / "again" / "medusa_lm_head.pt", weights_only=True)
    assert written.keys() == tensors.keys()
    assert all(torch.equal(value, written[name]) for name, value in tensors.items())
    check(
        load_head(tmp_path / "again", target),
        tensors,
        2,
        sizes,
        lambda head: lambda x: x @ tensors[f"{head}.2.weight"].T,
    )


def test_v10_is_a_whole_model_of_which_the_heads_are_read(sizes, target, tmp_path):
    tensors = published(sizes, heads=2, blocks=1)
    base = {"model.embed_tokens.weight": torch.ones(3, 3), "lm_head.weight": torch.ones(3, 3)}
    save_file(
        {**{f"medusa_head.{name}": value for name, value in tensors.items()}, **base}, tmp_path / "model.safetensors"
    )
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": sizes.vocab, "medusa_num_heads": 2}))
    heads = load_head(tmp_path, target)
    check(heads, tensors, 1, sizes, lambda head: lambda x: x @ tensors[f"{head}.1.weight"].T)
    write_medusa(tmp_path / "again", heads, target, layout="v1.0")
    assert load_file(tmp_path / "again" / "model.safetensors").keys() == {f"medusa_head.{name}" for name in tensors}


def test_heads_may_share_the_output_layer_of_the_target(sizes, target, tmp_path):
    tensors = published(sizes, output=False)
    torch.save(tensors, tmp_path / "medusa_lm_head.pt")
    with pytest.raises(ModelLoadError, match=r"'0\.2\.weight' is missing"):
        load_head(tmp_path, target)
    (tmp_path / "config.json").write_text('{"share_lm_head": true}')
    heads = load_head(tmp_path, target)
    check(heads, tensors, 2, sizes, lambda _: target.logits)
    write_medusa(tmp_path / "again", heads, target)
    assert json.loads((tmp_path / "again" / "config.json").read_text())["share_lm_head"] is True
    assert load_head(tmp_path / "again", target).share_lm_head


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("1.0.linear.bias"), r"'1\.0\.linear\.bias' is missing"),
        (lambda t: t.pop("2.2.weight"), r"'2\.2\.weight' is missing"),
        (
            lambda t: t.update({"0.2.weight": torch.ones(71, 48)}),
            r"'0\.2\.weight' has shape \(71, 48\), but .* \(70, 48\)",
        ),
        (lambda t: t.update({"0.0.linear.weight": torch.ones(64, 64)}), r"'0\.0\.linear\.weight' has shape \(64, 64\)"),
        (lambda t: t.update({"0.3.gate.weight": torch.ones(2)}), r"does not use: 0\.3\.gate\.weight"),
    ],
)
def test_heads_that_do_not_fit_are_named(change, message, sizes, target, tmp_path):
    tensors = published(sizes)
    change(tensors)
    torch.save(tensors, tmp_path / "medusa_lm_head.pt")
    with pytest.raises(ModelLoadError, match=message):
        load_head(tmp_path, target)


@pytest.mark.parametrize("left", [0, 0.3, 0.95])
def test_a_truncated_file_is_named(left, sizes, target, tmp_path):
    path = tmp_path / "medusa_lm_head.pt"
    torch.save(published(sizes), path)
    path.write_bytes(path.read_bytes()[: int(left * path.stat().st_size)])
    with pytest.raises(ModelLoadError, match=r"medusa_lm_head\.pt is truncated.*fetch it again"):
        load_head(tmp_path, target)
