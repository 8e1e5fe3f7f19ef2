"""Incremental detokenising: whole characters, and the same text as decoding everything at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from decoding.finish import FinishReason
from service.sample_text import SampleText

pieces = st.lists(st.binary(max_size=5), max_size=12)


@given(st.text(max_size=20), st.integers(1, 5))
def test_a_delta_never_cuts_a_character(text, width):
    data = text.encode()
    tokens = [data[at : at + width] for at in range(0, len(data), width)]
    sample = SampleText(tokens, None)
    shown = ""
    for index in range(len(tokens)):
        shown += sample.feed([index])
        assert text.startswith(shown)
    assert shown + sample.finish(FinishReason.LENGTH) == text


@given(pieces)
def test_any_bytes_decode_as_they_do_at_once(tokens):
    sample = SampleText(tokens, None)
    shown = "".join(sample.feed([index]) for index in range(len(tokens)))
    assert shown + sample.finish(FinishReason.EOS) == b"".join(tokens).decode(errors="replace")


def test_a_text_that_was_cut_within_a_character_ends_before_it():
    for reason, rest in ((FinishReason.LENGTH, ""), (FinishReason.CANCELLED, ""), (FinishReason.EOS, "\ufffd")):
        sample = SampleText([b"a\xe2\x82"], None)
        assert sample.feed([0]) == "a"
        assert sample.finish(reason) == rest


def test_a_token_without_bytes_adds_nothing():
    sample = SampleText([b"", b"a"], None)
    assert [sample.feed([0]), sample.feed([1, 0])] == ["", "a"]
