"""Reads what a Hugging Face style directory says about its tokenizer: template, first and last tokens.

Invariant: nothing here opens weights.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from decoding.errors import ModelLoadError
from engine.loading.files import ModelFiles


def read_directory(directory: Path, name: str, *, gguf: Path | None = None) -> ModelFiles:
    """The model in ``directory``, converted from ``gguf`` or from nothing.

    Raises ModelLoadError where config.json or tokenizer.json is missing or broken.
    """
    config = _read_json(directory / "config.json", required=True)
    generation = _read_json(directory / "generation_config.json", required=False)
    options = _read_json(directory / "tokenizer_config.json", required=False)
    path = directory / "tokenizer.json"
    tokenizer = _read_tokenizer(path)

    eos: set[int] = set()
    # A multimodal model keeps its language model's configuration apart.
    for source in (generation, config, config.get("text_config") or {}):
        value = source.get("eos_token_id")
        eos.update(value if isinstance(value, list) else [] if value is None else [value])
    eos.update(_token_ids(tokenizer, options.get("eos_token")))
    return ModelFiles(
        name=name,
        directory=directory,
        tokenizer=path,
        chat_template=_chat_template(directory, options),
        eos_token_ids=tuple(sorted(eos)),
        bos_token_id=_bos(tokenizer, options),
        gguf=gguf,
    )


def _read_json(path: Path, *, required: bool) -> dict[str, Any]:
    if not path.is_file():
        if required:
            raise ModelLoadError(f"{path} does not exist; a model directory needs it")
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelLoadError(f"{path} is no JSON ({error}); fetch it again") from error
    if not isinstance(content, dict):
        raise ModelLoadError(f"{path} must hold a JSON object; fetch it again")
    return content


def _read_tokenizer(path: Path) -> Tokenizer:
    if not path.is_file():
        raise ModelLoadError(
            f"{path} does not exist; save it with transformers' AutoTokenizer.from_pretrained(...).save_pretrained(...)"
        )
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises bare Exception
        raise ModelLoadError(f"{path} cannot be read ({error}); fetch it again") from error


def _token_ids(tokenizer: Tokenizer, token: object) -> list[int]:
    """The id of a token of tokenizer_config.json, which is text or an object with ``content``; none where unknown."""
    content = token.get("content") if isinstance(token, dict) else token
    found = tokenizer.token_to_id(content) if isinstance(content, str) else None
    return [] if found is None else [found]


def _bos(tokenizer: Tokenizer, options: dict[str, Any]) -> int | None:
    """What the tokenizer itself puts before an empty text, else what tokenizer_config.json tells it to put there."""
    before = tokenizer.encode("", add_special_tokens=True).ids
    ids = before[:1] or (_token_ids(tokenizer, options.get("bos_token")) if options.get("add_bos_token") else [])
    return ids[0] if ids else None


def _chat_template(directory: Path, options: dict[str, Any]) -> str | None:
    """A file of its own (transformers since 4.50), or in tokenizer_config.json: text, or a list of named texts."""
    path = directory / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    template = options.get("chat_template")
    if isinstance(template, list):
        return next((entry["template"] for entry in template if entry["name"] == "default"), None)
    return template if isinstance(template, str) else None
