"""EAGLE-1 and EAGLE-2 checkpoints, as published under ``yuhuili/EAGLE-*``.

Invariant: the state dict of `EagleHead` *is* the list of tensors; nothing is renamed.
"""

from __future__ import annotations

from pathlib import Path

import torch

from drafters.checkpoints.checks import check_vocabulary, check_width
from drafters.checkpoints.config import HeadConfig, read_layer_shape
from drafters.checkpoints.tensors import HeadTensors, as_is
from drafters.checkpoints.writing import layer_fields, state_tensors, write_head
from drafters.heads.eagle import EagleHead
from drafters.heads.target import TargetModel

EMBEDDING = "embed_tokens.weight"


def read_eagle(directory: Path, target: TargetModel) -> EagleHead:
    """The head in ``directory``; raises ModelLoadError where it is damaged or does not fit the target."""
    config, tensors = HeadConfig.read(directory), HeadTensors(directory)
    # The fully connected layer has a bias unless the config says otherwise; Qwen2's attention has one.
    qkv_bias = config.flag("qkv_bias", default=config.flag("attention_bias", default=False))
    shape = read_layer_shape(config, qkv_bias=qkv_bias)
    check_width("hidden_size", shape.hidden_size, target, directory)
    check_vocabulary(config, target, directory)
    with torch.device("meta"):
        head = EagleHead(
            shape,
            target,
            num_layers=config.integer("num_hidden_layers", 1),
            fc_bias=config.flag("bias", default=True),
            own_embedding=EMBEDDING in tensors.names,
        )
    tensors.fill(head, as_is, target.dtype, target.device)
    tensors.skip(lambda name: name.endswith("rotary_emb.inv_freq"))
    tensors.finish(head.kind)
    return head


def write_eagle(directory: Path, head: EagleHead, target: TargetModel) -> None:
    """The head as ``model.safetensors`` and ``config.json``."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        **layer_fields(head.shape),
        "num_hidden_layers": head.num_layers,
        "vocab_size": target.vocab_size,
        "bias": head.fc.bias is not None,
        "qkv_bias": head.shape.qkv_bias,
        "attention_bias": head.shape.output_bias,
    }
    write_head(directory, state_tensors(head, lambda name: name), config)
