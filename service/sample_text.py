"""The text of one sample, as far as it may be shown.

Bytes wait here while they are part of a character, or could become a stop string:

    bytes      ............|........|......
                shown      | held   |  not arrived
                           ^ a possible stop string, or an unfinished character, begins here

Invariant: the shown pieces joined are the final text; nothing shown is ever taken back.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence

from decoding.finish import FinishReason
from service.stops import StopAutomaton

_WHOLE_TEXT = frozenset({FinishReason.EOS, FinishReason.GRAMMAR_END, FinishReason.STOP_STRING})


class SampleText:
    """Decodes one sample's tokens step by step."""

    def __init__(self, token_bytes: Sequence[bytes], stops: StopAutomaton | None) -> None:
        """``token_bytes[i]`` are the bytes that token i adds to the text, none for a special token that is hidden."""
        self._token_bytes = token_bytes
        self._stops = stops
        self._state = 0
        self._stopped = False
        self._held = bytearray()
        # Invalid bytes become U+FFFD, as in the tokenizers' own decoders.
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, tokens: Iterable[int]) -> str:
        """Take the sample's next tokens; the characters that can be shown now."""
        for token in tokens:
            self._take(self._token_bytes[token])
        keep = self._stops.depth(self._state) if self._stops is not None and not self._stopped else 0
        return self._show(len(self._held) - keep)

    def finish(self, reason: FinishReason) -> str:
        """The rest of the text. One that was cut within a character ends before that character."""
        return self._show(len(self._held), final=reason in _WHOLE_TEXT)

    def _take(self, piece: bytes) -> None:
        if self._stopped:
            return
        if self._stops is None:
            self._held += piece
            return
        for byte in piece:
            self._held.append(byte)
            self._state = self._stops.step(self._state, byte)
            if match := self._stops.match(self._state):
                del self._held[-match:]
                self._stopped = True
                return

    def _show(self, count: int, *, final: bool = False) -> str:
        piece = bytes(self._held[:count])
        del self._held[:count]
        return self._decoder.decode(piece, final)
