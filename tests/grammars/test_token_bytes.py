from __future__ import annotations

import json

import pytest
from tokenizers import decoders

from decoding.errors import ModelLoadError
from grammars.token_bytes import LeadingSpace, token_decoder


def description(decoder: decoders.Decoder) -> dict[str, object]:
    return json.loads(decoder.__getstate__())


def test_byte_alphabet_covers_every_byte_once() -> None:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = [*map(chr, printable), *map(chr, range(256, 256 + 256 - len(printable)))]
    decode = token_decoder({"type": "ByteLevel"}).to_bytes
    assert sorted(decode(char) for char in alphabet) == [bytes([byte]) for byte in range(256)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<0x0A>", b"\n"),
        ("<0xff>", b"\xff"),
        ("<0xF>", b"<0xF>"),
        ("<0xGG>", b"<0xGG>"),
        ("▁▁a", b"  a"),
        ("é", b"\xc3\xa9"),
    ],
)
def test_byte_fallback_and_marks(text: str, expected: bytes) -> None:
    decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    assert token_decoder(description(decoder)).to_bytes(text) == expected


@pytest.mark.parametrize(
    ("decoder", "expected"),
    [
        ({"type": "ByteLevel"}, LeadingSpace.KEEP),
        ({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}, LeadingSpace.DROP_FIRST_TOKENS),
        ({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"}, LeadingSpace.DROP_FIRST_TOKENS),
        ({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"}, LeadingSpace.KEEP),
        ({"type": "Metaspace", "replacement": "▁", "add_prefix_space": True}, LeadingSpace.DROP_FIRST_TOKENS),
        ({"type": "Metaspace", "replacement": "▁", "add_prefix_space": False}, LeadingSpace.KEEP),
    ],
)
def test_leading_space_rule(decoder: dict[str, object], expected: LeadingSpace) -> None:
    assert token_decoder(decoder).leading_space is expected


@pytest.mark.parametrize(
    ("decoder", "named"),
    [
        (decoders.WordPiece(), "WordPiece"),
        (decoders.BPEDecoder(), "BPEDecoder"),
        (decoders.CTC(), "CTC"),
        (decoders.Strip(content=" ", left=1), "Strip"),
        (decoders.Sequence([decoders.Fuse(), decoders.Strip(content=" ", left=0, right=1)]), "Strip"),
        (decoders.Sequence([decoders.Fuse(), decoders.ByteLevel()]), "ByteLevel"),
    ],
)
def test_decoder_that_looks_at_neighbours_is_refused_by_name(decoder: decoders.Decoder, named: str) -> None:
    with pytest.raises(ModelLoadError, match=named):
        token_decoder(description(decoder))


def test_missing_decoder_is_refused() -> None:
    with pytest.raises(ModelLoadError, match="no decoder"):
        token_decoder(None)
