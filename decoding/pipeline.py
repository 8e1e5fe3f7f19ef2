"""From rows of logits to tokens, through every sampling stage in its documented order.

    bias → repetition, presence, frequency → bad words, min_tokens, ignore_eos → mask, padded tail
         → temperature → top-k → top-p → min-p → draw

Most rows need a fraction of that: an unmoved greedy row is one argmax, checked against what is forbidden; a short list
of legal tokens is gathered and the rest of the vocabulary never looked at. Invariant: which way a row takes never shows
in its outcome, and no forbidden token is ever drawn.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping, Sequence

import numpy as np
import torch

from decoding.bans import banned
from decoding.candidates import Candidates, Floats, Ids, narrow, scale
from decoding.draws import draw_best, draw_keyed
from decoding.keyed import row_key, strides
from decoding.masking import mask_row
from decoding.masks import SHORT_LIST
from decoding.penalties import move_logits, moves_logits
from decoding.reader import LogitsReader, read_logits
from decoding.rows import Draw, RowContext

NOT_FINITE = "the model's logits are not finite at a legal token; check its weights, dtype and quantisation"


class LogitsPipeline:
    """Draws one token per row.

    Args:
        vocab_size: the tokenizer's true size; ids from there to the logits' padded width are never drawn.
        eos_token_ids: what min_tokens and ignore_eos forbid.
    """

    def __init__(self, vocab_size: int, eos_token_ids: tuple[int, ...]) -> None:
        self.vocab_size = vocab_size
        self.eos_token_ids = eos_token_ids
        self._ids_V: Ids = np.arange(vocab_size, dtype=np.int64)
        self._strides_V = strides(self._ids_V)

    def draw(self, logits_RV: torch.Tensor, rows: Sequence[RowContext]) -> list[Draw]:
        """One draw per row of ``logits_RV`` (floating, any device, V >= vocab_size, never written).

        A row without a legal token has no token; a row whose logits are not finite has no token and an error.
        """
        assert logits_RV.ndim == 2
        assert len(logits_RV) == len(rows)
        assert logits_RV.shape[1] >= self.vocab_size
        reader = read_logits(logits_RV[:, : self.vocab_size])
        bans = [banned(row, self.eos_token_ids) for row in rows]
        draws = self._best(reader, rows, bans)
        sampled: dict[int, tuple[Candidates, int]] = {}
        with np.errstate(over="ignore"):  # what scales beyond the range is -inf, rightly: its probability is 0
            for index, ids_C, logits_C in self._legal(reader, rows, bans, skip=draws):
                row, largest = rows[index], float(logits_C.max())
                if not math.isfinite(largest):
                    draws[index] = Draw(token=None, error=None if largest == -math.inf else NOT_FINITE)
                elif row.params.temperature:
                    key = row_key(row.params.seed, row.sample_index, len(row.prompt) + len(row.output))
                    scaled_C = scale(logits_C, largest, row.params.temperature)
                    sampled[index] = self._candidates(ids_C, scaled_C, row, key), key
                else:
                    draws[index] = draw_best(self._candidates(ids_C, logits_C - largest, row, 0), row.params)
            draws.update(_draw_sampled(sampled, rows))
        return [draws[index] for index in range(len(rows))]

    @staticmethod
    def _best(reader: LogitsReader, rows: Sequence[RowContext], bans: Sequence[frozenset[int]]) -> dict[int, Draw]:
        """Greedy rows whose largest logit is already legal: forbidding others cannot change that."""
        plain = [index for index, row in enumerate(rows) if _is_plain(row)]
        draws = {}
        for index, (token, logit) in zip(plain, reader.best(plain) if plain else (), strict=True):
            mask = rows[index].mask
            if math.isfinite(logit) and token not in bans[index] and (mask is None or token in mask):
                draws[index] = Draw(token=token)
        return draws

    def _legal(
        self,
        reader: LogitsReader,
        rows: Sequence[RowContext],
        bans: Sequence[frozenset[int]],
        skip: Container[int],
    ) -> Iterator[tuple[int, Ids, Floats]]:
        """Row index, ids and moved logits of every other row, -inf where forbidden."""
        left = [index for index in range(len(rows)) if index not in skip]
        listed = {
            index: legal
            for index in left
            if (legal := _short_list(rows[index])) is not None
            and not bans[index]
            and not moves_logits(rows[index].params)
        }
        if listed:
            yield from zip(listed, listed.values(), reader.gather(list(listed), list(listed.values())), strict=True)
        whole = [index for index in left if index not in listed]
        for index, logits_V in zip(whole, reader.copies(whole) if whole else (), strict=True):
            yield index, *self._forbid(logits_V, rows[index], bans[index])

    def _forbid(self, logits_V: Floats, row: RowContext, bans: frozenset[int]) -> tuple[Ids, Floats]:
        """Move and forbid a whole row in place; its ids and logits, short where its mask is."""
        move_logits(logits_V, row)
        logits_V[list(bans)] = -np.inf
        legal = _short_list(row)
        if legal is not None:
            return legal, logits_V[legal]
        if row.mask is not None:
            mask_row(logits_V, row.mask)
        return self._ids_V, logits_V

    def _candidates(self, ids_C: Ids, scaled_C: Floats, row: RowContext, key: int) -> Candidates:
        if len(ids_C) <= SHORT_LIST:
            return Candidates(ids_C=ids_C, scaled_C=scaled_C)
        return narrow(scaled_C, row.params, key, self._strides_V)


def _is_plain(row: RowContext) -> bool:
    """Greedy on untouched logits, no list of legal tokens at hand, nothing asked but the token."""
    params = row.params
    return not params.temperature and params.logprobs is None and _short_list(row) is None and not moves_logits(params)


def _short_list(row: RowContext) -> Ids | None:
    return None if row.mask is None else row.mask.legal


def _draw_sampled(
    sampled: Mapping[int, tuple[Candidates, int]], rows: Sequence[RowContext]
) -> Iterator[tuple[int, Draw]]:
    """Rows with few candidates in one batch, so that no wide one pads them; each wide one by itself."""
    short = [index for index, (candidates, _) in sampled.items() if len(candidates.ids_C) <= SHORT_LIST]
    batches = [[index] for index in sampled if index not in short] + ([short] if short else [])
    for batch in batches:
        candidates, keys = zip(*(sampled[index] for index in batch), strict=True)
        yield from zip(batch, draw_keyed(candidates, [rows[index].params for index in batch], keys), strict=True)
