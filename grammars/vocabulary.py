"""What a grammar knows of a tokenizer: the bytes of every token.

Invariant: the bytes of a text are the concatenated bytes of its tokens; an id that adds no text has no bytes, and a
grammar never allows it unless it is an end-of-sequence id.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from decoding.errors import ModelLoadError
from grammars.token_bytes import LeadingSpace, token_decoder


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Vocabulary:
    """Bytes of every token of one tokenizer; immutable and picklable. Compare two by their `fingerprint`.

    Attributes:
        tokens: the bytes of id t at t; empty for ids that add no text (special tokens, gaps).
        special_ids: ids that steer the model instead of adding text, `eos_ids` among them.
        eos_ids: ascending ids that end a text, at least one.
        size: V, the width of the model's logits; ids from `num_tokens` on are padding and always forbidden.
        leading_space: what the tokenizer's own decoder does to the space that opens a whole text.
        fingerprint: SHA-256 of all the above.
    """

    tokens: tuple[bytes, ...]
    special_ids: frozenset[int]
    eos_ids: tuple[int, ...]
    size: int
    leading_space: LeadingSpace = LeadingSpace.KEEP
    fingerprint: str = field(init=False)

    def __post_init__(self) -> None:
        if not self.eos_ids:
            raise ModelLoadError("the model names no end-of-sequence token; a constrained text could never end")
        if outside := sorted(t for t in self.special_ids.union(self.eos_ids) if not 0 <= t < len(self.tokens)):
            raise ModelLoadError(f"special token ids {outside} are outside the tokenizer's {len(self.tokens)} tokens")
        if len(self.tokens) > self.size:
            raise ModelLoadError(f"{len(self.tokens)} tokens do not fit the model's {self.size} logits")
        if not self.special_ids.issuperset(self.eos_ids) or any(self.tokens[t] for t in self.special_ids):
            raise ModelLoadError("every end-of-sequence id must be special, and special tokens carry no bytes")
        object.__setattr__(self, "eos_ids", tuple(sorted(set(self.eos_ids))))
        object.__setattr__(self, "fingerprint", self._hash())

    @property
    def num_tokens(self) -> int:
        """How many ids the tokenizer has, at most `size`."""
        return len(self.tokens)

    def join(self, ids: Iterable[int], *, opening: bool = False) -> bytes:
        """The bytes that ``ids`` add to a text, as grammars see them.

        With ``opening`` the ids are a whole text and not a continuation, and `leading_space` applies, as it does in
        the tokenizer's own decoding.
        """
        pieces = [self.tokens[token] for token in ids if token not in self.special_ids]
        if opening and self.leading_space is LeadingSpace.DROP_FIRST_TOKENS and pieces:
            pieces[0] = pieces[0].replace(b" ", b"")
        text = b"".join(pieces)
        return text.removeprefix(b" ") if opening and self.leading_space is LeadingSpace.DROP_ONE else text

    def _hash(self) -> str:
        digest = hashlib.sha256(
            repr((self.size, self.eos_ids, sorted(self.special_ids), self.leading_space.value)).encode()
        )
        for token in self.tokens:
            digest.update(len(token).to_bytes(4, "little"))
            digest.update(token)
        return digest.hexdigest()


def load_vocabulary(tokenizer_json: Path, *, eos_token_ids: Iterable[int], size: int) -> Vocabulary:
    """Read a Hugging Face tokenizer.json for a model with ``size`` logits.

    Tokens flagged special, the unknown token and ``eos_token_ids`` carry no bytes. Special tokens past ``size`` (some
    multimodal tokenizers are shared with text-only models) are left out. Raises ModelLoadError where the file is not a
    tokenizer, its decoder is unsupported, or an ordinary token has no logit.
    """
    try:
        description = json.loads(tokenizer_json.read_bytes())
        texts, special = _texts(description)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelLoadError(f"{tokenizer_json} is not a readable tokenizer.json: {error!r}") from error
    decoder = token_decoder(description.get("decoder"))
    eos_ids = tuple(eos_token_ids)
    special.update(eos_ids)
    if stray := sorted(token for token in texts if token >= size and token not in special):
        raise ModelLoadError(
            f"token {texts[stray[0]]!r} (id {stray[0]}) and {len(stray) - 1} more have no logit in a model of {size};"
            f" {tokenizer_json} belongs to another model"
        )
    count = max((token for token in texts if token < size), default=-1) + 1
    return Vocabulary(
        tokens=tuple(
            decoder.to_bytes(texts[token]) if token in texts and token not in special else b"" for token in range(count)
        ),
        special_ids=frozenset(token for token in special if token < count or token in eos_ids),
        eos_ids=eos_ids,
        size=size,
        leading_space=decoder.leading_space,
    )


def _texts(description: dict[str, Any]) -> tuple[dict[int, str], set[int]]:
    """The literal text of every id, and the ids that add no text."""
    model = description["model"]
    pieces = model["vocab"]
    if isinstance(pieces, dict):
        texts = {int(token): str(text) for text, token in pieces.items()}
        unknown = pieces.get(model.get("unk_token"))
    else:  # Unigram: [piece, score] in order of ids
        texts = {token: str(text) for token, (text, _) in enumerate(pieces)}
        unknown = model.get("unk_id")
    special = set() if unknown is None else {int(unknown)}
    for added in description.get("added_tokens") or ():
        texts[added["id"]] = added["content"]
        if added["special"]:
            special.add(added["id"])
    return texts, special
