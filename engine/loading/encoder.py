"""The tokenizer of a model, for those who spell text.

Invariant: no special token is added, and none is found in a text.
"""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer

from decoding.errors import ModelLoadError


class TextEncoder:
    """`drafters.spelling.Tokenizer` over a tokenizer.json."""

    def __init__(self, path: Path) -> None:
        """Raises ModelLoadError where the file is not a tokenizer."""
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises Exception itself
            raise ModelLoadError(f"{path} is not a readable tokenizer.json: {error}") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without special tokens around it."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids
