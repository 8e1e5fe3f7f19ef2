"""Writers of EAGLE-3 heads, in the layout of the EAGLE-3 repository and in that of the speculators library.

Invariant: what `drafters.checkpoints.eagle3` reads from either layout is the head that was written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from drafters.checkpoints.eagle3 import AUX_LAYERS, eagle3_names
from drafters.checkpoints.writing import layer_fields, state_tensors, write_head
from drafters.heads.eagle3 import Eagle3Head
from drafters.heads.target import TargetModel


def write_eagle3(directory: Path, head: Eagle3Head, target: TargetModel) -> None:
    """The layout of the EAGLE-3 repository, ``midlayer.*``."""
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        **_layer(head, target),
        **_options(head, target),
        "bias": head.options.fc_bias,
        "eagle_config": {
            "use_aux_hidden_state": head.options.fuses,
            **({AUX_LAYERS: list(head.features.layer_inputs)} if head.options.fuses else {}),
        },
    }
    write_head(directory, _tensors(head, target, first="midlayer"), config)


def write_speculators(directory: Path, head: Eagle3Head, target: TargetModel, *, speculative_tokens: int) -> None:
    """The layout of the speculators library, ``layers.0.*``; ``speculative_tokens`` is advice to servers."""
    assert head.options.fuses, "the speculators format has no heads without fc"
    proposal = {"proposal_type": "greedy", "speculative_tokens": speculative_tokens}
    config = {
        "architectures": ["Eagle3Speculator"],
        "model_type": "speculators",
        "speculators_model_type": "eagle3",
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [proposal],
            "verifier": {"name_or_path": target.name, "architectures": []},
        },
        "transformer_layer_config": {"model_type": "llama", **_layer(head, target)},
        **_options(head, target),
        "bias": head.options.fc_bias,
        AUX_LAYERS: list(head.features.layer_inputs),
    }
    write_head(directory, _tensors(head, target, first="layers"), config)


def _layer(head: Eagle3Head, target: TargetModel) -> dict[str, Any]:
    shape = head.shape
    assert shape.qkv_bias == shape.output_bias, "one field, attention_bias, speaks of both"
    return {
        **layer_fields(shape),
        "num_hidden_layers": head.num_layers,
        "vocab_size": target.vocab_size,
        "attention_bias": shape.qkv_bias,
    }


def _options(head: Eagle3Head, target: TargetModel) -> dict[str, Any]:
    options = head.options
    return {
        "draft_vocab_size": options.draft_vocab_size,
        "target_hidden_size": target.hidden_size,
        "tie_word_embeddings": options.tied,
        "norm_before_fc": options.norm_before_fc,
        "fc_norm": options.fc_norm,
        "norm_before_residual": options.norm_before_residual,
        "norm_output": options.norm_output,
    }


def _tensors(head: Eagle3Head, target: TargetModel, *, first: str) -> dict[str, torch.Tensor]:
    def rename(name: str) -> str:
        return next(found for found in (*eagle3_names(name), name) if found.startswith(first) or found == name)

    tensors = state_tensors(head, rename)
    if head.target_ids is not None:
        target_ids = head.target_ids.cpu()
        drafted_V = torch.zeros(target.vocab_size, dtype=torch.bool)
        drafted_V[target_ids] = True
        tensors |= {"d2t": target_ids - torch.arange(len(target_ids)), "t2d": drafted_V}
    return tensors
