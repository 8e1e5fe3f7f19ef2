"""Rotary position embedding (Su et al. 2021) with tables from transformers' own utilities.

Invariant: a token's rotation depends on its position alone. Scalings whose frequencies depend on the length of the
text would rotate keys that are cached already, so they are refused.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers import PretrainedConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from decoding.errors import ModelLoadError

_LENGTH_DEPENDENT = ("dynamic", "longrope")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rope:
    """Frequencies of one model.

    Attributes:
        inverse_frequencies: float32 [D / 2], radians per position.
        magnitude: factor on cosine and sine (yarn scales attention through it).
    """

    inverse_frequencies: torch.Tensor
    magnitude: float

    @classmethod
    def from_transformers(cls, config: PretrainedConfig, head_dim: int) -> Rope:
        """The table that transformers computes for ``config``; raises ModelLoadError where it cannot be cached."""
        refuse_length_dependent_rope(config)
        embedding = LlamaRotaryEmbedding(config)  # type: ignore[arg-type]  # the family shares its fields
        if len(embedding.inv_freq) != head_dim // 2:
            raise ModelLoadError(
                f"rope rotates {2 * len(embedding.inv_freq)} of {head_dim} head dimensions; "
                "partial rotation runs with the transformers implementation only"
            )
        return cls(inverse_frequencies=embedding.inv_freq, magnitude=float(embedding.attention_scaling))

    def rotation(self, positions_T: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and signed sines [T, 1, D] for `rotate`, computed in at least float32."""
        wide = torch.promote_types(dtype, torch.float32)
        angles_TD = torch.outer(positions_T.to(wide), self.inverse_frequencies.to(positions_T.device, wide))
        cos, sin = angles_TD.cos() * self.magnitude, angles_TD.sin() * self.magnitude
        return torch.cat((cos, cos), -1).to(dtype).unsqueeze(1), torch.cat((-sin, sin), -1).to(dtype).unsqueeze(1)


def rotate(x_THD: torch.Tensor, cos_T1D: torch.Tensor, sin_T1D: torch.Tensor) -> torch.Tensor:
    """Rotate dimension i of every head with dimension i + D/2: ``(a, b) -> (a cos - b sin, b cos + a sin)``."""
    half = x_THD.shape[-1] // 2
    swapped = torch.cat((x_THD[..., half:], x_THD[..., :half]), dim=-1)
    return (x_THD * cos_T1D).addcmul_(swapped, sin_T1D)


def refuse_length_dependent_rope(config: PretrainedConfig) -> None:
    """Raise ModelLoadError where a rope scaling of ``config`` depends on the length of the text.

    ``rope_parameters`` is one dictionary, or one for each type of layer.
    """
    parameters = getattr(config, "rope_parameters", None) or {}
    for table in (parameters, *(value for value in parameters.values() if isinstance(value, dict))):
        rope_type = table.get("rope_type", "default")
        if rope_type in _LENGTH_DEPENDENT:
            raise ModelLoadError(
                f"rope scaling {rope_type!r} depends on the length of the text, which a KV cache cannot honour; "
                "set rope_parameters in config.json to 'default', 'linear', 'llama3' or 'yarn'"
            )
