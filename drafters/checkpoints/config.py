"""A head's config.json: typed fields, and the decoder layer that it describes.

Invariant: a field that is read has the type that was asked for; a wrong one is an error that names file and field.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from transformers.activations import ACT2FN

from decoding.errors import ModelLoadError
from drafters.heads.layers import LayerShape
from drafters.heads.rope import Rope


class HeadConfig:
    """One JSON object of a config.json, with where it stands for messages. ``null`` counts as absent."""

    def __init__(self, fields: dict[str, Any], where: str) -> None:
        self.fields = fields
        self.where = where

    @classmethod
    def read(cls, directory: Path, *, required: bool = True) -> HeadConfig:
        """config.json of a directory; raises ModelLoadError where it is missing or broken."""
        path = directory / "config.json"
        if not path.is_file():
            if required:
                raise ModelLoadError(f"{path} does not exist; a head needs the config.json that it was published with")
            return cls({}, str(path))
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ModelLoadError(f"{path} is no JSON ({error}); fetch it again") from error
        if not isinstance(fields, dict):
            raise ModelLoadError(f"{path} must hold a JSON object; fetch it again")
        return cls(fields, str(path))

    def __contains__(self, name: str) -> bool:
        return self.fields.get(name) is not None

    def integer(self, name: str, default: int | None = None) -> int:
        """A whole number of at least 1; raises ModelLoadError where it is none, or absent without a default."""
        value = self.fields.get(name)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self._wrong(name, "a whole number of at least 1")
        return value

    def number(self, name: str, default: float) -> float:
        """A number."""
        value = self.fields.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(name, "a number")
        return float(value)

    def flag(self, name: str, *, default: bool) -> bool:
        """A boolean."""
        value = self.fields.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false")
        return value

    def text(self, name: str, default: str = "") -> str:
        """A string."""
        value = self.fields.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self._wrong(name, "a string")
        return value

    def indices(self, name: str) -> tuple[int, ...] | None:
        """A list of whole numbers from 0 on, or None where it is absent."""
        value = self.fields.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not value or not all(type(item) is int and item >= 0 for item in value):
            raise self._wrong(name, "a list of layer indices")
        return tuple(value)

    def section(self, name: str) -> HeadConfig:
        """A nested object; an empty one where it is absent."""
        value = self.fields.get(name)
        if value is not None and not isinstance(value, dict):
            raise self._wrong(name, "an object")
        return HeadConfig(value or {}, f"{self.where}: {name}")

    def _wrong(self, name: str, expected: str) -> ModelLoadError:
        found = "is missing" if self.fields.get(name) is None else f"is {self.fields[name]!r}"
        return ModelLoadError(f"{self.where}: {name!r} {found} and must be {expected}; restore the published file")


def read_layer_shape(config: HeadConfig, *, qkv_bias: bool, qk_norm: bool = False) -> LayerShape:
    """The decoder layer of a Llama-style config; raises ModelLoadError where it contradicts itself."""
    hidden_size = config.integer("hidden_size")
    num_heads = config.integer("num_attention_heads")
    num_kv_heads = config.integer("num_key_value_heads", num_heads)
    if num_heads % num_kv_heads:
        raise ModelLoadError(
            f"{config.where}: num_attention_heads {num_heads} is not a multiple of num_key_value_heads {num_kv_heads}; "
            "restore the published file"
        )
    head_dim = config.integer("head_dim", max(1, hidden_size // num_heads))
    activation = config.text("hidden_act", "silu")
    if activation not in ACT2FN:
        raise ModelLoadError(f"{config.where}: hidden_act {activation!r} is no activation of transformers")
    return LayerShape(
        hidden_size=hidden_size,
        intermediate_size=config.integer("intermediate_size"),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        norm_eps=config.number("rms_norm_eps", 1e-6),
        activation=activation,
        qkv_bias=qkv_bias,
        output_bias=config.flag("attention_bias", default=False),
        mlp_bias=config.flag("mlp_bias", default=False),
        qk_norm=qk_norm,
        rope=Rope.from_config(config.fields, hidden_size=hidden_size, num_heads=num_heads, head_dim=head_dim),
    )
