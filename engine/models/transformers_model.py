"""Any causal language model of transformers, computed by its own modelling code over our paged KV cache.

All packed tokens form one batch entry with explicit positions; transformers' caches and masks are not used. Invariant:
a model that exists was seen to agree with transformers' plain attention on a short text (`transformers_probe`).
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast

from decoding.errors import ModelLoadError
from engine.attention.base import AttentionBackend
from engine.forward import ForwardInput
from engine.kv_cache import KVCache, KVShape
from engine.models.base import Hidden
from engine.models.transformers_attention import STEP_ARGUMENT, PagedStep


class TransformersModel:
    """`engine.models.base.CausalModel` around a model of transformers."""

    def __init__(
        self, model: PreTrainedModel, attention: AttentionBackend[Any], kv_shapes: tuple[KVShape, ...]
    ) -> None:
        self._decoder = getattr(model, model.base_model_prefix)
        self._head = head_of(model)
        self._attention = attention
        self._config = model.config
        self._kv_shapes = kv_shapes
        self._parameters = sum(parameter.numel() for parameter in model.parameters())
        output: Any = model.get_output_embeddings()  # type: ignore[no-untyped-call]
        self._vocab_size = output.weight.shape[0]
        self._dtype, self._device = model.dtype, model.device

    @property
    def architecture(self) -> str:
        """Model type of its config.json."""
        return str(self._config.model_type)

    @property
    def parameters(self) -> int:
        """Number of weights."""
        return self._parameters

    @property
    def vocab_size(self) -> int:
        """V."""
        return int(self._vocab_size)

    @property
    def context_length(self) -> int:
        """Most positions that the model was made for."""
        return int(self._config.get_text_config().max_position_embeddings)

    @property
    def kv_shapes(self) -> tuple[KVShape, ...]:
        """As seen in a forward pass."""
        return self._kv_shapes

    @property
    def dtype(self) -> torch.dtype:
        """Compute dtype."""
        return self._dtype

    @property
    def device(self) -> torch.device:
        """Where the weights live."""
        return self._device

    def hidden(self, batch: ForwardInput, cache: KVCache, *, taps: tuple[int, ...] = ()) -> Hidden:
        """Hidden states of one step; writes its keys and values into ``cache``."""
        arguments: dict[str, Any] = {STEP_ARGUMENT: PagedStep(self._attention, batch, cache)}
        if not taps:
            return Hidden(final_states(run_decoder(self._decoder, batch.tokens_T, batch.positions_T, arguments)))
        if max(taps) >= self._config.get_text_config().num_hidden_layers:
            raise ModelLoadError(
                f"{self.architecture} runs through transformers, which does not show the output of the last layer "
                "before its norm; use a draft head that reads other layers"
            )
        arguments["output_hidden_states"] = True
        output = run_decoder(self._decoder, batch.tokens_T, batch.positions_T, arguments)
        states = output.hidden_states
        assert states is not None
        return Hidden(final_states(output), tuple(states[layer][0] for layer in taps))

    def embed(self, tokens_T: torch.Tensor) -> torch.Tensor:
        """The embeddings [T, E], as the model's own code scales them."""
        embedding: torch.Tensor = self._decoder.get_input_embeddings()(tokens_T)
        return embedding

    def logits(self, hidden_RE: torch.Tensor) -> torch.Tensor:
        """Logits [R, V], with whatever the model does to them (scaling, soft caps)."""
        logits: torch.Tensor = self._head(inputs_embeds=hidden_RE.unsqueeze(0), use_cache=False).logits
        return logits.squeeze(0)


def run_decoder(
    decoder: nn.Module, tokens_T: torch.Tensor, positions_T: torch.Tensor, arguments: dict[str, Any]
) -> BaseModelOutputWithPast:
    """What the decoder returns for one batch entry; hidden states in it are [1, T, E]."""
    output: BaseModelOutputWithPast = decoder(
        input_ids=tokens_T.unsqueeze(0), position_ids=positions_T.unsqueeze(0), use_cache=False, **arguments
    )
    return output


def final_states(output: BaseModelOutputWithPast) -> torch.Tensor:
    """The hidden states [T, E] after the final norm."""
    assert output.last_hidden_state is not None
    return output.last_hidden_state.squeeze(0)


class _GivenOutput(BaseModelOutputWithPast):
    """Hidden states, and None for whatever else an architecture's decoder reports beside them."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


class _GivenHidden(nn.Module):
    """Stands where the decoder was and returns the hidden states that it is given."""

    def forward(self, *_inputs: Any, inputs_embeds: torch.Tensor, **_arguments: Any) -> BaseModelOutputWithPast:
        return _GivenOutput(last_hidden_state=inputs_embeds)


def head_of(model: PreTrainedModel) -> PreTrainedModel:
    """``model`` without its decoder: from ``inputs_embeds``, taken as final hidden states, to logits.

    Sharing the weights and running the model's own forward keeps what an architecture does beside the output layer.
    """
    head = copy.copy(model)
    head._modules = {**model._modules, model.base_model_prefix: _GivenHidden()}  # noqa: SLF001 (torch has no other way)
    return head
