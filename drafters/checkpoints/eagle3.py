"""EAGLE-3 checkpoints: as published by ``yuhuili``, ``lmsys``, ``nvidia`` or ``AngelSlim``, and the speculators format.

Both hold the same tensors. The first calls the first layer ``midlayer`` and keeps its options flat or in
``eagle_config``; the second calls it ``layers.0`` and keeps the layer's shape in ``transformer_layer_config``.
Invariant: an option that a config leaves open is either harmless or reported.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

import torch

from decoding.errors import ModelLoadError
from drafters.checkpoints.checks import check_draft_vocabulary, check_vocabulary, check_width, warn_of_other_target
from drafters.checkpoints.config import HeadConfig, read_layer_shape
from drafters.checkpoints.tensors import HeadTensors
from drafters.heads.eagle3 import Eagle3Head, Eagle3Options
from drafters.heads.target import FINAL_HIDDEN, FeatureSpec, TargetModel

log = logging.getLogger(__name__)

AUX_LAYERS = "eagle_aux_hidden_state_layer_ids"
_FIRST, _ALSO_FIRST = "layers.0.", "midlayer."


def read_eagle3(directory: Path, target: TargetModel) -> Eagle3Head:
    """A head in the format of the EAGLE-3 repository; raises ModelLoadError where it does not fit the target."""
    config = HeadConfig.read(directory)
    # The section's keys count where both places have them.
    options = HeadConfig({**config.fields, **config.section("eagle_config").fields}, config.where)
    return _read(directory, target, layer=config, options=options)


def read_speculators(directory: Path, target: TargetModel) -> Eagle3Head:
    """An ``eagle3`` head in the speculators format; raises ModelLoadError where it does not fit the target."""
    config = HeadConfig.read(directory)
    kind = config.text("speculators_model_type")
    if kind != "eagle3":
        raise ModelLoadError(f"{directory}: speculators_model_type {kind!r} is not supported, only 'eagle3'")
    if "norm_before_residual" not in config:
        log.warning(
            "%s does not say norm_before_residual; false is assumed, as the speculators library (version %s) "
            "does, where other readers of this format assume true. If guesses are poor, set it in the config",
            config.where,
            config.text("speculators_version", "unknown"),
        )
    trained_for = config.section("speculators_config").section("verifier").text("name_or_path")
    warn_of_other_target(trained_for, target, directory)
    layer = config.section("transformer_layer_config")
    return _read(directory, target, layer=layer, options=config)


def _read(directory: Path, target: TargetModel, *, layer: HeadConfig, options: HeadConfig) -> Eagle3Head:
    tensors = HeadTensors(directory)
    shape = read_layer_shape(
        layer,
        qkv_bias=layer.flag("attention_bias", default=False),
        qk_norm=any(name in tensors.names for name in eagle3_names("layers.0.self_attn.q_norm.weight")),
    )
    check_vocabulary(layer, target, directory)
    if "target_hidden_size" in options:
        check_width("target_hidden_size", options.integer("target_hidden_size"), target, directory)
    chosen = _options(layer, options, tensors, target)
    if not chosen.own_embedding:
        check_width("hidden_size (the head has no embed_tokens.weight)", shape.hidden_size, target, directory)
    if not chosen.fuses:
        check_width("hidden_size (use_aux_hidden_state is false)", shape.hidden_size, target, directory)
    features = FeatureSpec(layer_inputs=_aux_layers(options, target)) if chosen.fuses else FINAL_HIDDEN
    target_ids = _target_ids(tensors, chosen.draft_vocab_size, target)
    with torch.device("meta"):
        head = Eagle3Head(shape, target, features, chosen, target_ids)
    tensors.fill(head, eagle3_names, target.dtype, target.device)
    # The speculators library keeps a copy of the target's output layer beside the head's.
    tensors.skip(lambda name: name == "t2d" or name.startswith("verifier_") or name.endswith("rotary_emb.inv_freq"))
    tensors.finish(head.kind)
    return head


def _options(layer: HeadConfig, options: HeadConfig, tensors: HeadTensors, target: TargetModel) -> Eagle3Options:
    own_embedding = "embed_tokens.weight" in tensors.names
    draft_vocab_size = options.integer("draft_vocab_size", target.vocab_size)
    tied = options.flag("tie_word_embeddings", default=False) and "lm_head.weight" not in tensors.names
    if tied and not (own_embedding and draft_vocab_size == target.vocab_size):
        raise ModelLoadError(
            f"{tensors.directory}: tie_word_embeddings needs embed_tokens.weight and a full draft vocabulary; restore "
            "the published files, which hold lm_head.weight"
        )
    fuses = options.flag("use_aux_hidden_state", default=True)
    return Eagle3Options(
        num_layers=layer.integer("num_hidden_layers", 1),
        draft_vocab_size=draft_vocab_size,
        own_embedding=own_embedding,
        tied=tied,
        fc_bias=options.flag("bias", default=False),
        fuses=fuses,
        norm_before_fc=fuses and options.flag("norm_before_fc", default=False),
        fc_norm=fuses and options.flag("fc_norm", default=False),
        norm_before_residual=options.flag("norm_before_residual", default=False),
        norm_output=options.flag("norm_output", default=False),
    )


def eagle3_names(name: str) -> Iterable[str]:
    """The names that files give a parameter of `Eagle3Head`."""
    if name.startswith(_FIRST):
        return (_ALSO_FIRST + name.removeprefix(_FIRST), name)
    return (name,)


def _aux_layers(options: HeadConfig, target: TargetModel) -> tuple[int, ...]:
    given = options.indices(AUX_LAYERS)
    count = target.num_layers
    layers = given or (2, count // 2, count - 3)
    if given is None:
        log.warning(
            "%s DOES NOT SAY WHICH LAYERS' HIDDEN STATES THE HEAD READS. The inputs of layers %s are guessed, as the "
            "EAGLE-3 repository takes them; if guesses are poor, set %s in the config",
            options.where,
            layers,
            AUX_LAYERS,
        )
    wrong = [layer for layer in layers if not 0 <= layer < count]
    if wrong:
        raise ModelLoadError(
            f"{options.where}: {AUX_LAYERS} {'names' if given else 'is missing, and the usual choice is'} layer "
            f"{wrong[0]}, but {target.name} has {count} layers; set {AUX_LAYERS}, or use a head for this target"
        )
    return layers


def _target_ids(tensors: HeadTensors, draft_vocab_size: int, target: TargetModel) -> torch.Tensor | None:
    """Target ids of the draft vocabulary, which files keep as offsets: target id = i + d2t[i]."""
    directory = tensors.directory
    if draft_vocab_size > target.vocab_size:
        raise ModelLoadError(
            f"{directory}: draft_vocab_size {draft_vocab_size} is larger than the vocabulary of {target.name}, "
            f"{target.vocab_size}; use a head that was trained for this target"
        )
    if "d2t" not in tensors.names and draft_vocab_size == target.vocab_size:
        return None
    target_ids = tensors.take(("d2t",), (draft_vocab_size,)).long() + torch.arange(draft_vocab_size)
    check_draft_vocabulary(target_ids, target, directory)
    if "t2d" in tensors.names:
        drafted_V = tensors.take(("t2d",), (target.vocab_size,)).bool()
        if not torch.equal(drafted_V.nonzero().flatten(), target_ids.sort().values):
            raise ModelLoadError(f"{directory}: tensors 'd2t' and 't2d' name different tokens; fetch the head again")
    return target_ids.to(target.device)
