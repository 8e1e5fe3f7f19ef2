"""Rotary position embedding (Su et al. 2021) of a head, with the frequency table of transformers' Llama.

Invariant: the rotation of a pair depends on its position alone, so that cached keys stay right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from decoding.errors import ModelLoadError

_LENGTH_DEPENDENT = ("dynamic", "longrope")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rope:
    """Frequencies of one head.

    Attributes:
        inverse_frequencies: float32 [D / 2], radians per position.
        magnitude: factor on cosine and sine (yarn scales attention through it).
        settings: the fields of config.json that it was made from.
    """

    inverse_frequencies: torch.Tensor
    magnitude: float
    settings: Mapping[str, Any]

    @classmethod
    def from_config(cls, config: dict[str, Any], *, hidden_size: int, num_heads: int, head_dim: int) -> Rope:
        """The table for ``rope_theta``, ``rope_scaling`` or ``rope_parameters`` of a config.json.

        Raises ModelLoadError where transformers does not understand them, or frequencies depend on the text's length.
        """
        fields = ("rope_theta", "rope_scaling", "rope_parameters", "max_position_embeddings", "partial_rotary_factor")
        given = {name: config[name] for name in fields if config.get(name) is not None}
        try:
            llama = LlamaConfig.from_dict(
                {**given, "hidden_size": hidden_size, "num_attention_heads": num_heads, "head_dim": head_dim}
            )
            kind = (llama.rope_parameters or {}).get("rope_type", "default")
            if kind in _LENGTH_DEPENDENT:
                raise ModelLoadError(
                    f"rope scaling {kind!r} of the head depends on the length of the text, which its cache cannot "
                    "honour; set it to 'default', 'linear', 'llama3' or 'yarn' in the head's config.json"
                )
            embedding = LlamaRotaryEmbedding(llama)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelLoadError(f"the rope settings in the head's config.json cannot be read: {error}") from error
        if len(embedding.inv_freq) != head_dim // 2:
            raise ModelLoadError(
                f"the head rotates {2 * len(embedding.inv_freq)} of {head_dim} dimensions; partial rotation is not "
                "supported in heads, choose another drafter"
            )
        return cls(inverse_frequencies=embedding.inv_freq, magnitude=float(embedding.attention_scaling), settings=given)

    def rotation(self, positions_T: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and signed sines [T, 1, D] for `rotate`, computed in at least float32."""
        wide = torch.promote_types(dtype, torch.float32)
        angles_TD = torch.outer(positions_T.to(wide), self.inverse_frequencies.to(positions_T.device, wide))
        cos, sin = angles_TD.cos() * self.magnitude, angles_TD.sin() * self.magnitude
        return torch.cat((cos, cos), -1).to(dtype).unsqueeze(1), torch.cat((-sin, sin), -1).to(dtype).unsqueeze(1)


def rotate(x_THD: torch.Tensor, cos_T1D: torch.Tensor, sin_T1D: torch.Tensor) -> torch.Tensor:
    """Rotate dimension i of every head with dimension i + D/2: ``(a, b) -> (a cos - b sin, b cos + a sin)``."""
    first, second = x_THD.chunk(2, dim=-1)
    return x_THD * cos_T1D + torch.cat((second, first), dim=-1) * sin_T1D
