"""Finds out what a model of transformers asks of attention, and whether ours gives what it needs.

Rules refuse by name what is known not to work. Then a short text is computed twice, with transformers' plain attention
and, in two chunks, with the paged one. Invariant: a model that keeps any state outside the KV cache fails here.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import PretrainedConfig, PreTrainedModel

from decoding.errors import ModelLoadError
from engine.attention.base import AttentionBackend
from engine.forward import ForwardInput
from engine.kv_cache import BLOCK_SIZE, KVCache, KVShape
from engine.models.rope import refuse_length_dependent_rope
from engine.models.transformers_attention import ATTENTION_NAME, STEP_ARGUMENT, AttentionCall, PagedStep
from engine.models.transformers_model import final_states, run_decoder

_TOKENS = 12
_TOLERANCE = 0.1
"""Largest relative difference of hidden states: far above bfloat16's rounding, far below a wrong mask's."""


def refuse_by_rule(model_class: type[PreTrainedModel], config: PretrainedConfig) -> None:
    """Raise ModelLoadError where class or configuration say that paged attention cannot work."""
    name = config.model_type
    text = config.get_text_config()
    if getattr(config, "is_encoder_decoder", False):
        raise ModelLoadError(f"{name} is an encoder-decoder; only decoders can be served")
    if getattr(model_class, "_is_stateful", False):
        raise ModelLoadError(f"{name} keeps a recurrent state (state-space or linear attention), which has no KV cache")
    if not model_class._supports_attention_backend:  # noqa: SLF001 (transformers' marker for third parties)
        raise ModelLoadError(f"{name} does not let its attention be replaced in this version of transformers")
    refuse_length_dependent_rope(text)
    unknown = set(getattr(text, "layer_types", None) or ()) - {"full_attention", "sliding_attention"}
    if unknown:
        raise ModelLoadError(
            f"{name} has layers of type {', '.join(sorted(unknown))}, which paged attention does not know"
        )
    if not getattr(text, "max_position_embeddings", None):
        raise ModelLoadError(f"config.json of {name} does not state max_position_embeddings; add it")


class _Recorder:
    """Answers with plain causal attention and writes down what was asked."""

    def __init__(self) -> None:
        self.calls: list[AttentionCall] = []

    def attend(self, call: AttentionCall) -> torch.Tensor:
        self.calls.append(call)
        q, k, v = (x.transpose(0, 1) for x in (call.q_THD, call.k_THD, call.v_THD))
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=call.scale, enable_gqa=True)
        return out.transpose(0, 1)


def probe(model: PreTrainedModel, attention: AttentionBackend[Any]) -> tuple[KVShape, ...]:
    """Key and value shape of each layer; raises ModelLoadError where the paged attention does not fit the model."""
    decoder = getattr(model, model.base_model_prefix)
    try:
        shapes = _shapes(model.config, decoder)
        _compare(model, decoder, attention, shapes)
    except ModelLoadError:
        raise
    except Exception as error:  # two hundred architectures fail in as many ways
        raise ModelLoadError(f"{model.config.model_type} cannot be run over a paged KV cache: {error}") from error
    return shapes


def _shapes(config: PretrainedConfig, decoder: nn.Module) -> tuple[KVShape, ...]:
    name, text = config.model_type, config.get_text_config()
    recorder = _Recorder()
    tokens_T = _tokens(config, decoder)
    run_decoder(decoder, tokens_T, torch.arange(_TOKENS, device=tokens_T.device), {STEP_ARGUMENT: recorder})
    if [call.layer for call in recorder.calls] != list(range(text.num_hidden_layers)):
        raise ModelLoadError(
            f"{name} has {text.num_hidden_layers} layers, but asks for attention in layers "
            f"{[call.layer for call in recorder.calls]} instead of once in each; what the others keep has no KV cache"
        )
    windows = [call.window for call in recorder.calls]
    types = getattr(text, "layer_types", None) or []
    slides = any(kind == "sliding_attention" for kind in types) or bool(
        not types and getattr(text, "sliding_window", 0)
    )
    if slides and not any(windows):
        raise ModelLoadError(f"{name} has a sliding window that it does not tell its attention function")
    for call in recorder.calls:
        if call.k_THD.shape != call.v_THD.shape:
            raise ModelLoadError(
                f"{name} has keys and values of different shapes (latent attention), which have no cache"
            )
    return tuple(KVShape(num_heads=call.k_THD.shape[1], head_dim=call.k_THD.shape[2]) for call in recorder.calls)


def _compare(
    model: PreTrainedModel, decoder: nn.Module, attention: AttentionBackend[Any], shapes: tuple[KVShape, ...]
) -> None:
    """One text in two chunks, the second with all of the first as context, against transformers' plain attention."""
    tokens_T = _tokens(model.config, decoder)
    positions_T = torch.arange(_TOKENS, device=tokens_T.device)
    cache = KVCache(shapes, 1, model.dtype, tokens_T.device)
    chunks = []
    for start in (0, _TOKENS // 2):
        chunk = slice(start, start + _TOKENS // 2)
        batch = ForwardInput(
            tokens_T=tokens_T[chunk],
            positions_T=positions_T[chunk],
            slots_T=positions_T[chunk],
            starts=(0, _TOKENS // 2),
            context_lens=(start,),
            parents=(None,),
            block_tables_SB=torch.zeros(1, 1, dtype=torch.int64, device=tokens_T.device),
            rows_R=positions_T[:0],
        )
        step = PagedStep(attention, batch, cache)
        output = run_decoder(decoder, batch.tokens_T, batch.positions_T, {STEP_ARGUMENT: step})
        chunks.append(final_states(output))
    model.set_attn_implementation("eager")
    plain_TE = final_states(run_decoder(decoder, tokens_T, positions_T, {}))
    model.set_attn_implementation(ATTENTION_NAME)
    difference = (torch.cat(chunks) - plain_TE).float().norm() / plain_TE.float().norm()
    if not difference < _TOLERANCE:
        raise ModelLoadError(
            f"{model.config.model_type} computes something else over the paged KV cache than with transformers' own "
            f"attention (relative difference {difference:.2f}); it cannot be served"
        )


def _tokens(config: PretrainedConfig, decoder: nn.Module) -> torch.Tensor:
    """Some token ids, spread over the vocabulary."""
    device = next(decoder.parameters()).device
    stride: int = config.get_text_config().vocab_size // (_TOKENS + 2)
    return torch.arange(1, _TOKENS + 1, device=device) * stride


assert _TOKENS <= BLOCK_SIZE
