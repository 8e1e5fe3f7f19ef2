"""The stages up to the mask: each row's moved logits, -inf where a token is forbidden.

Two short cuts spare most rows the walk over the vocabulary: a greedy row whose largest logit is legal needs nothing
else, and a mask that lists its few legal tokens has only those gathered. Invariant: a short cut is taken only where the
long way ends at the same tokens with the same logits.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Sequence

import numpy as np

from decoding.bans import banned
from decoding.masking import mask_row
from decoding.penalties import move_logits, moves_logits
from decoding.reader import Ids, Logits, LogitsReader
from decoding.rows import RowContext


class LegalLogits:
    """The rows of one tensor, seen through bias, penalties, bans and masks."""

    def __init__(self, reader: LogitsReader, rows: Sequence[RowContext], eos_token_ids: tuple[int, ...]) -> None:
        self._reader = reader
        self._rows = rows
        self._bans = [banned(row, eos_token_ids) for row in rows]

    def best(self) -> dict[int, int]:
        """Tokens by row index, of the greedy rows whose largest logit is legal: forbidding others cannot change it."""
        plain = [index for index, row in enumerate(self._rows) if _is_plain(row)]
        found = zip(plain, self._reader.best(plain) if plain else (), strict=True)
        return {index: token for index, (token, logit) in found if math.isfinite(logit) and self._allows(index, token)}

    def each(self, *, skip: Container[int]) -> Iterator[tuple[int, Ids | None, Logits]]:
        """Row index, ids and logits of every other row, in an array of the caller's own; None for all ids."""
        left = [index for index in range(len(self._rows)) if index not in skip]
        listed = {index: legal for index in left if (legal := self._untouched_list(index)) is not None}
        if listed:
            ids = list(listed.values())
            yield from zip(listed, ids, self._reader.gather(list(listed), ids), strict=True)
        whole = [index for index in left if index not in listed]
        for index, logits_V in zip(whole, self._reader.copies(whole) if whole else (), strict=True):
            yield index, *self._forbid(logits_V, self._rows[index], self._bans[index])

    def _allows(self, index: int, token: int) -> bool:
        mask = self._rows[index].mask
        return token not in self._bans[index] and (mask is None or token in mask)

    def _untouched_list(self, index: int) -> Ids | None:
        """The row's list of legal tokens, where it is short and nothing but the mask bears on the row."""
        row = self._rows[index]
        return None if self._bans[index] or moves_logits(row.params) else _short_list(row)

    @staticmethod
    def _forbid(logits_V: Logits, row: RowContext, bans: frozenset[int]) -> tuple[Ids | None, Logits]:
        move_logits(logits_V, row)
        logits_V[list(bans)] = -np.inf
        legal = _short_list(row)
        if legal is not None:
            return legal, logits_V[legal]
        if row.mask is not None:
            mask_row(logits_V, row.mask)
        return None, logits_V


def _is_plain(row: RowContext) -> bool:
    """Greedy on unmoved logits, asked for nothing but the token, and without a list of legal tokens at hand."""
    params = row.params
    return not params.temperature and params.logprobs is None and _short_list(row) is None and not moves_logits(params)


def _short_list(row: RowContext) -> Ids | None:
    return None if row.mask is None else row.mask.legal
