"""A model on disk, whatever it was made from.

Invariant: `ModelFiles` names files that exist; who reads them need not know where they came from.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """A Hugging Face style model directory.

    Attributes:
        name: what clients call the model, e.g. ``SmolLM2-135M-Instruct``.
        directory: holds config.json and, unless the weights are random, safetensors files.
        tokenizer: path of tokenizer.json.
        chat_template: Jinja source of the model's own chat template, or None.
        eos_token_ids: every id that ends a text (generation_config.json, config.json and tokenizer together).
        bos_token_id: id that starts a prompt where the tokenizer adds one, or None.
        gguf: the GGUF file that the directory was converted from, or None.
    """

    name: str
    directory: Path
    tokenizer: Path
    chat_template: str | None
    eos_token_ids: tuple[int, ...]
    bos_token_id: int | None
    gguf: Path | None = None
