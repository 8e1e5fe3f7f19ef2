"""What the native decoder needs to know of a model, read from its config.json.

Invariant: a `ModelConfig` that exists describes a model that `engine.models.llama` computes exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, PretrainedConfig
from transformers.activations import ACT2FN

from decoding.errors import ModelLoadError
from engine.models.rope import Rope

NATIVE_MODEL_TYPES = ("llama", "mistral", "qwen2", "qwen3")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelConfig:
    """Shape and options of a decoder of the Llama family.

    Attributes:
        model_type: name of the family in transformers.
        vocab_size: V, padding included.
        hidden_size: E.
        intermediate_size: width of the gated MLP.
        num_heads: H, query heads.
        num_kv_heads: Hk, key and value heads; divides H.
        head_dim: D.
        context_length: most positions that the model was made for.
        norm_eps: added to the mean square in every RMS norm.
        activation: name of the MLP's gate function in transformers.
        qkv_bias: queries, keys and values have biases.
        output_bias: the attention's output projection has one.
        mlp_bias: all projections of the MLP have one.
        qk_norm: queries and keys are normalised per head before rotation.
        tied_embeddings: the output layer is the embedding.
        windows: per layer, the sliding window, or None where a token sees everything before it.
        rope: rotary table.
    """

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    context_length: int
    norm_eps: float
    activation: str
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: bool
    tied_embeddings: bool
    windows: tuple[int | None, ...]
    rope: Rope

    @property
    def num_layers(self) -> int:
        """L."""
        return len(self.windows)

    @classmethod
    def from_transformers(cls, config: PretrainedConfig) -> ModelConfig:
        """Raises ModelLoadError where the native decoder does not know the family or one of its options."""
        family = config.model_type
        if family not in NATIVE_MODEL_TYPES:
            raise ModelLoadError(
                f"the native decoder does not know model type {family!r}, only {', '.join(NATIVE_MODEL_TYPES)}; "
                "use the transformers implementation"
            )
        if config.hidden_act not in ACT2FN:
            raise ModelLoadError(f"hidden_act {config.hidden_act!r} in config.json is no activation of transformers")
        if config.num_attention_heads % config.num_key_value_heads:
            raise ModelLoadError(
                f"num_attention_heads {config.num_attention_heads} in config.json is not a multiple of "
                f"num_key_value_heads {config.num_key_value_heads}"
            )
        # Qwen2's config does not state the head size.
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        attention_bias = bool(getattr(config, "attention_bias", False))
        return cls(
            model_type=family,
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_heads=config.num_attention_heads,
            num_kv_heads=config.num_key_value_heads,
            head_dim=head_dim,
            context_length=config.max_position_embeddings,
            norm_eps=config.rms_norm_eps,
            activation=config.hidden_act,
            qkv_bias=family == "qwen2" or attention_bias,
            output_bias=attention_bias,
            mlp_bias=bool(getattr(config, "mlp_bias", False)),
            qk_norm=family == "qwen3",
            tied_embeddings=config.tie_word_embeddings,
            windows=_windows(config),
            rope=Rope.from_transformers(config, head_dim),
        )


def read_transformers_config(directory: Path) -> PretrainedConfig:
    """config.json as transformers reads it.

    Raises ModelLoadError where it is missing, broken or of an unknown type, or says that the weights are quantised.
    """
    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(directory, local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError, StrictDataclassError) as error:
        raise ModelLoadError(f"{directory / 'config.json'} cannot be read: {error}") from error
    if quantisation := getattr(config, "quantization_config", None):
        method = quantisation.get("quant_method") if isinstance(quantisation, dict) else quantisation
        raise ModelLoadError(f"the weights in {directory} are quantised by {method!r}; use the unquantised checkpoint")
    return config


def _windows(config: PretrainedConfig) -> tuple[int | None, ...]:
    """Mistral slides in every layer, Qwen in those that ``layer_types`` names, Llama in none."""
    window: int | None = getattr(config, "sliding_window", None)
    layer_types = getattr(config, "layer_types", None)
    if layer_types is None or config.model_type == "mistral":
        num_layers: int = config.num_hidden_layers
        return (window,) * num_layers
    unknown = set(layer_types) - {"full_attention", "sliding_attention"}
    if unknown:
        raise ModelLoadError(f"layer_types {sorted(unknown)} in config.json are unknown to the native decoder")
    return tuple(window if kind == "sliding_attention" else None for kind in layer_types)
