"""Medusa checkpoints: v0.1 (heads alone, ``medusa_lm_head.pt``) and v1.0 (a whole model with ``medusa_head.*``).

The number of heads and blocks is that of the tensors, because the config of published v0.1 files states it wrongly.
Invariant: of a whole model only the heads are read; its other weights are the target's affair.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import torch

from decoding.errors import ModelLoadError
from drafters.checkpoints.checks import check_vocabulary, warn_of_other_target
from drafters.checkpoints.config import HeadConfig
from drafters.checkpoints.tensors import HeadTensors
from drafters.checkpoints.writing import state_tensors, write_config, write_head
from drafters.heads.medusa import MedusaHeads
from drafters.heads.target import TargetModel

PREFIX = "medusa_head."
_BLOCK = re.compile(r"(\d+)\.(\d+)\.linear\.weight")


def read_medusa(directory: Path, target: TargetModel) -> MedusaHeads:
    """The heads in ``directory``; raises ModelLoadError where they are damaged or do not fit the target."""
    config, tensors = HeadConfig.read(directory, required=False), HeadTensors(directory)
    whole_model = any(name.startswith(PREFIX) for name in tensors.names)
    prefix = PREFIX if whole_model else ""
    if whole_model:
        tensors.skip(lambda name: not name.startswith(PREFIX))
    check_vocabulary(config, target, directory)
    warn_of_other_target(config.text("base_model_name_or_path"), target, directory)
    num_heads, num_blocks = _count(directory, {name.removeprefix(prefix) for name in tensors.names})
    with torch.device("meta"):
        heads = MedusaHeads(
            target,
            num_heads=num_heads,
            num_blocks=num_blocks,
            share_lm_head=config.flag("share_lm_head", default=False),
        )
    tensors.fill(heads, lambda name: (prefix + name,), target.dtype, target.device)
    tensors.finish(heads.kind)
    return heads


def write_medusa(
    directory: Path, heads: MedusaHeads, target: TargetModel, *, layout: Literal["v0.1", "v1.0"] = "v0.1"
) -> None:
    """``medusa_lm_head.pt`` (v0.1), or ``medusa_head.*`` alone in ``model.safetensors`` (v1.0); and ``config.json``.

    Heads that share the target's output layer are written without one and with ``share_lm_head: true``, an extension.
    """
    config = {
        "base_model_name_or_path": target.name,
        "medusa_num_heads": heads.num_heads,
        "medusa_num_layers": heads.num_blocks,
        "hidden_size": target.hidden_size,
        "vocab_size": target.vocab_size,
        **({"share_lm_head": True} if heads.share_lm_head else {}),
    }
    if layout == "v1.0":
        write_head(directory, state_tensors(heads, lambda name: PREFIX + name), config)
        return
    directory.mkdir(parents=True, exist_ok=True)
    torch.save(state_tensors(heads, lambda name: name), directory / "medusa_lm_head.pt")
    write_config(directory, config)


def _count(directory: Path, names: Iterable[str]) -> tuple[int, int]:
    """Heads, and residual blocks of each."""
    blocks = [match for name in names if (match := _BLOCK.fullmatch(name))]
    if not blocks:
        raise ModelLoadError(
            f"{directory}: no tensor is named like '0.0.linear.weight' of a Medusa head; name the heads' directory"
        )
    return 1 + max(int(match[1]) for match in blocks), 1 + max(int(match[2]) for match in blocks)
