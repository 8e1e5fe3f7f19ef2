"""From the vocabulary in a GGUF file to tokenizer.json.

transformers rebuilds vocabulary, merges and special tokens. Invariant: text is cut before the merges the way that the
file's ``tokenizer.ggml.pre`` demands, or the file is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, pre_tokenizers
from transformers import AutoTokenizer

from decoding.errors import ModelLoadError

_GPT2_SPLIT = frozenset({"gpt-2", "phi-2", "olmo", "mpt", "jais"})
_DIGITS_THEN_GPT2_SPLIT = frozenset({"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"})
"""Names by which llama.cpp (src/llama-vocab.cpp) asks for GPT-2's split, with digits cut one by one before or not."""

_UNUSED = 5
"""Token type of the GGUF specification."""

_MEND = "use the model's original Hugging Face directory"


def write_tokenizer(gguf: Path, metadata: Mapping[str, Any], directory: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json and, where the file has one, chat_template.jinja."""
    try:
        tokenizer: Tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).backend_tokenizer
    except (ValueError, KeyError, TypeError) as error:
        raise ModelLoadError(f"the tokenizer of {gguf} cannot be rebuilt ({error}); {_MEND}") from error
    _set_split(tokenizer, metadata.get("tokenizer.ggml.pre", "default"))
    tokens = metadata["tokenizer.ggml.tokens"]
    kinds = metadata.get("tokenizer.ggml.token_type", ())
    padding = {token for token, kind in zip(tokens, kinds, strict=False) if kind == _UNUSED}
    (directory / "tokenizer.json").write_text(_without(tokenizer, padding), encoding="utf-8")

    sentencepiece = metadata.get("tokenizer.ggml.model") == "llama"
    options: dict[str, Any] = {"add_bos_token": bool(metadata.get("tokenizer.ggml.add_bos_token", sentencepiece))}
    for kind in ("bos", "eos"):
        token = metadata.get(f"tokenizer.ggml.{kind}_token_id")
        if token is not None:
            options[f"{kind}_token"] = tokens[token]
    (directory / "tokenizer_config.json").write_text(json.dumps(options, indent=1), encoding="utf-8")
    if template := metadata.get("tokenizer.chat_template"):
        (directory / "chat_template.jinja").write_text(template, encoding="utf-8")


def _without(tokenizer: Tokenizer, padding: set[str]) -> str:
    """tokenizer.json without the names that llama.cpp gives to the padded tail of the vocabulary: they are no text."""
    content = json.loads(tokenizer.to_str())
    if padding:
        content["model"]["vocab"] = {t: index for t, index in content["model"]["vocab"].items() if t not in padding}
    return json.dumps(content, ensure_ascii=False)


def _set_split(tokenizer: Tokenizer, pre: str) -> None:
    """Set what ``pre`` asks for where transformers, not knowing it, left GPT-2's split."""
    if not _splits_like_gpt2(tokenizer) or pre in _GPT2_SPLIT:
        return
    if pre not in _DIGITS_THEN_GPT2_SPLIT:
        raise ModelLoadError(f"the GGUF file cuts text by {pre!r} before it applies merges, which is unknown; {_MEND}")
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])


def _splits_like_gpt2(tokenizer: Tokenizer) -> bool:
    split = json.loads(tokenizer.to_str())["pre_tokenizer"]
    return split is not None and split["type"] == "ByteLevel" and split["use_regex"]
