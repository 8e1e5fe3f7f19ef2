"""The stages that forbid single tokens beside the mask: bad words, min_tokens and ignore_eos.

Invariant: a ban depends on the row's own path, the drafted tokens above its node included.
"""

from __future__ import annotations

from collections.abc import Sequence

from decoding.rows import RowContext


def banned(row: RowContext, eos_token_ids: tuple[int, ...]) -> frozenset[int]:
    """Ids that may not be drawn at this row, whatever its mask says.

    A bad word bans its last token where the tokens before that one end the path, prompt included: a word that begins
    in the prompt is not completed either. A bad word that is one end-of-sequence token is passed over, as in
    transformers' NoBadWordsLogitsProcessor; `ignore_eos` says that.
    """
    params = row.params
    ids = set(_completing(row, eos_token_ids)) if params.bad_words else set()
    if params.ignore_eos or len(row.output) < params.min_tokens:
        ids.update(eos_token_ids)
    return frozenset(ids)


def _completing(row: RowContext, eos_token_ids: tuple[int, ...]) -> list[int]:
    """Last tokens of the bad words that the next token could complete."""
    longest = max(len(word) for word in row.params.bad_words) - 1
    path = (*_tail(row.prompt, longest), *_tail(row.output, longest))
    single_eos = {(token,) for token in eos_token_ids}
    return [
        word[-1]
        for word in row.params.bad_words
        if word not in single_eos and len(word) - 1 <= len(path) and path[len(path) - len(word) + 1 :] == word[:-1]
    ]


def _tail(tokens: Sequence[int], count: int) -> Sequence[int]:
    return tokens[max(len(tokens) - count, 0) :]
