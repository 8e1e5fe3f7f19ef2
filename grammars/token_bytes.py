"""How the decoder of a tokenizer.json turns one token into bytes.

Owns the decoders of Hugging Face `tokenizers` that act on each token alone. Invariant: a decoder whose bytes depend on
neighbouring tokens is refused by name, so that the bytes of a text are the bytes of its tokens, one after another; the
one exception, the space that a whole text opens with, is told apart as `LeadingSpace`.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from decoding.errors import ModelLoadError

_Step = Callable[[str | bytes], str | bytes]
_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class LeadingSpace(enum.Enum):
    """What the decoder does to the spaces that open a *whole* text; a continuation keeps them always."""

    KEEP = "keep"
    """Nothing."""
    DROP_ONE = "drop_one"
    """One space is dropped from the front of the text (`Strip` after `Fuse`)."""
    DROP_FIRST_TOKENS = "drop_first_tokens"
    """Every space of the first token is dropped (`Metaspace` whose prepend_scheme is not "never")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenDecoder:
    """`to_bytes` maps the literal text of a token, as tokenizer.json spells it, to what it adds to a text."""

    to_bytes: Callable[[str], bytes]
    leading_space: LeadingSpace


def token_decoder(decoder: Mapping[str, Any] | None) -> TokenDecoder:
    """Read the ``decoder`` entry of a tokenizer.json.

    Supported: ByteLevel, Metaspace, Replace (of a string), ByteFallback, Fuse, Strip of one leading space after Fuse,
    and Sequence of these. Raises ModelLoadError, naming it, for any other.
    """
    if decoder is None:
        raise ModelLoadError("the tokenizer has no decoder; convert it with one (ByteLevel, Metaspace, …)")
    steps: list[_Step] = []
    leading_space = LeadingSpace.KEEP
    fused = False
    for entry in _flatten(decoder):
        match entry:
            case {"type": "Fuse"}:
                fused = True
            case {"type": "Strip", "content": " ", "start": 1, "stop": 0} if fused:
                leading_space = LeadingSpace.DROP_ONE
            case _ if not fused and (step := _step(entry)):
                steps.append(step)
                if entry["type"] == "Metaspace" and _drops_first(entry):
                    leading_space = LeadingSpace.DROP_FIRST_TOKENS
            case _:
                raise ModelLoadError(
                    f"the tokenizer's decoder step {dict(entry)} is not supported: its bytes per token are not defined;"
                    " supported are ByteLevel, Metaspace, Replace of a string, ByteFallback, Fuse, and Strip of one"
                    " leading space after Fuse"
                )

    def to_bytes(text: str) -> bytes:
        piece: str | bytes = text
        for step in steps:
            piece = step(piece)
        return piece if isinstance(piece, bytes) else piece.encode()

    return TokenDecoder(to_bytes=to_bytes, leading_space=leading_space)


def _step(entry: Mapping[str, Any]) -> _Step | None:
    match entry:
        case {"type": "ByteLevel"}:
            return _byte_level
        case {"type": "ByteFallback"}:
            return _byte_fallback
        case {"type": "Replace", "pattern": {"String": str(old)}, "content": str(new)}:
            return _replace(old, new)
        case {"type": "Metaspace", "replacement": str(mark)}:
            return _replace(mark, " ")
        case _:
            return None


def _drops_first(metaspace: Mapping[str, Any]) -> bool:
    """Files from before prepend_scheme carry only add_prefix_space, whose true means "always"."""
    return metaspace.get("add_prefix_space") is not False and metaspace.get("prepend_scheme", "always") != "never"


def _flatten(decoder: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if decoder.get("type") != "Sequence":
        return [decoder]
    return [step for inner in decoder["decoders"] for step in _flatten(inner)]


def _byte_level_alphabet() -> dict[str, int]:
    """Printable Latin-1 stands for itself, every other byte for the next character from U+0100 on (GPT-2)."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + rank): byte for rank, byte in enumerate(others)}


_BYTE_LEVEL = MappingProxyType(_byte_level_alphabet())


def _byte_level(piece: str | bytes) -> bytes:
    if isinstance(piece, bytes):
        return piece
    try:
        return bytes([_BYTE_LEVEL[char] for char in piece])
    except KeyError:  # an added token, spelled outside the alphabet, stands for its own text
        return piece.encode()


def _byte_fallback(piece: str | bytes) -> str | bytes:
    if isinstance(piece, str) and (match := _BYTE_PIECE.fullmatch(piece)):
        return bytes([int(match[1], 16)])
    return piece


def _replace(old: str, new: str) -> _Step:
    return lambda piece: piece.replace(old, new) if isinstance(piece, str) else piece
