"""Multi-token-prediction tensors, in a checkpoint of their own or inside the target's.

Two ways of naming are read: that of DeepSeek and GLM, ``model.layers.{n}.{enorm,hnorm,eh_proj,shared_head.*}``, and
that of Qwen3-Next and later, ``mtp.*``. Invariant: a layer of a kind that is not implemented is refused by its name.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch

from decoding.errors import ModelLoadError
from drafters.checkpoints.checks import check_vocabulary, check_width
from drafters.checkpoints.config import HeadConfig, read_layer_shape
from drafters.checkpoints.tensors import HeadTensors
from drafters.checkpoints.writing import layer_fields, state_tensors, write_head
from drafters.heads.mtp import MtpHead
from drafters.heads.target import TargetModel

log = logging.getLogger(__name__)

QWEN_PREFIX = "mtp."
_DEEPSEEK_NAMES = (
    ("pre_fc_norm_embedding.", "enorm."),
    ("pre_fc_norm_hidden.", "hnorm."),
    ("fc.", "eh_proj."),
    ("layers.0.", ""),
    ("norm.", "shared_head.norm."),
    ("lm_head.", "shared_head.head."),
)
_DEEPSEEK_LAYER = re.compile(r"model\.layers\.(\d+)\.eh_proj\.weight")
_QWEN_LAYER = re.compile(r"mtp\.layers\.(\d+)\.input_layernorm\.weight")
_EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts")
_GATED_FAMILIES = ("qwen3_next", "qwen3_5", "qwen3_5_text")


def read_mtp(directory: Path, target: TargetModel) -> MtpHead:
    """The first MTP layer in ``directory``; raises ModelLoadError where it is refused or does not fit the target."""
    tensors, whole = HeadTensors(directory), HeadConfig.read(directory)
    config = whole.section("text_config") if "text_config" in whole else whole
    _refuse(config, tensors, target)
    prefix, rename = _naming(tensors)
    tensors.skip(lambda name: not name.startswith(prefix))

    def has(name: str) -> bool:
        return rename(name) in tensors.names

    shape = replace(
        read_layer_shape(config, qkv_bias=has("layers.0.self_attn.q_proj.bias")),
        output_bias=has("layers.0.self_attn.o_proj.bias"),
        qk_norm=has("layers.0.self_attn.q_norm.weight"),
    )
    check_width("hidden_size", shape.hidden_size, target, directory)
    check_vocabulary(config, target, directory)
    with torch.device("meta"):
        head = MtpHead(shape, target, own_embedding=has("embed_tokens.weight"), own_output=has("lm_head.weight"))
    tensors.fill(head, lambda name: (rename(name),), target.dtype, target.device)
    tensors.skip(lambda name: name.endswith("rotary_emb.inv_freq") or _later_layer(name))
    tensors.finish(head.kind)
    return head


def write_mtp(
    directory: Path, head: MtpHead, target: TargetModel, *, naming: Literal["qwen", "deepseek"] = "qwen"
) -> None:
    """The head under the names of ``qwen``, or of ``deepseek`` after the target's last layer."""
    rename: Callable[[str], str]
    if naming == "qwen":
        assert not head.own_output, "Qwen's names have no output layer of the head's own"
        rename = _qwen_name
    else:
        rename = _deepseek_name(f"model.layers.{target.num_layers}.")
    config = {
        "model_type": target.model_type,
        **layer_fields(head.shape),
        "num_hidden_layers": target.num_layers,
        "num_nextn_predict_layers": 1,
        "vocab_size": target.vocab_size,
        "attention_bias": head.shape.output_bias,
    }
    write_head(directory, state_tensors(head, rename), config)


def _refuse(config: HeadConfig, tensors: HeadTensors, target: TargetModel) -> None:
    def refuse(what: str) -> None:
        raise ModelLoadError(
            f"{tensors.directory}: MTP layers with {what} are not supported, only dense ones with grouped-query "
            "attention; choose another drafter"
        )

    if "kv_lora_rank" in config or any("kv_a_proj" in name for name in tensors.names):
        refuse("multi-head latent attention (MLA)")
    if any(name in config for name in _EXPERTS) or any(".mlp.experts." in name for name in tensors.names):
        refuse("a mixture of experts")
    if config.text("model_type", target.model_type) in _GATED_FAMILIES or "attn_output_gate" in config:
        refuse("gated attention and zero-centred norms (Qwen3-Next, Qwen3.5)")


def _naming(tensors: HeadTensors) -> tuple[str, Callable[[str], str]]:
    """What the names of the first MTP layer start with, and how the module's names look there."""
    deepseek = sorted(int(match[1]) for name in tensors.names if (match := _DEEPSEEK_LAYER.fullmatch(name)))
    qwen = [name for name in tensors.names if _QWEN_LAYER.fullmatch(name)]
    if len(deepseek) > 1 or len(qwen) > 1:
        log.warning(
            "%s holds %d MTP layers; the first one drafts, applied again for each further token",
            tensors.directory,
            max(len(deepseek), len(qwen)),
        )
    if deepseek:
        prefix = f"model.layers.{deepseek[0]}."
        return prefix, _deepseek_name(prefix)
    if any(name.startswith(QWEN_PREFIX) for name in tensors.names):
        return QWEN_PREFIX, _qwen_name
    raise ModelLoadError(
        f"{tensors.directory} holds no MTP tensors, neither 'model.layers.N.eh_proj.weight' nor 'mtp.fc.weight'; some "
        "uploads leave them out. Choose another drafter"
    )


def _deepseek_name(prefix: str) -> Callable[[str], str]:
    def rename(name: str) -> str:
        for ours, theirs in _DEEPSEEK_NAMES:
            if name.startswith(ours):
                return prefix + theirs + name.removeprefix(ours)
        return prefix + name

    return rename


def _qwen_name(name: str) -> str:
    return QWEN_PREFIX + name


def _later_layer(name: str) -> bool:
    return name.startswith(QWEN_PREFIX + "layers.") and not name.startswith(QWEN_PREFIX + "layers.0.")
