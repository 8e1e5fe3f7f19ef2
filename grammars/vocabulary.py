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

SPECIAL_MARK = b"\xff"
"""Opens the bytes by which automata read a special token; no UTF-8 text holds it."""
_SPECIAL_ID_BYTES = 3


def special_bytes(token: int) -> bytes:
    """How automata read a special token where a grammar names it. It adds no text."""
    return SPECIAL_MARK + token.to_bytes(_SPECIAL_ID_BYTES, "big")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Vocabulary:
    """Bytes of every token of one tokenizer; immutable and picklable. Compare two by their `fingerprint`.

    Attributes:
        tokens: the bytes of id t at t; empty for ids that add no text (special tokens, gaps).
        special_ids: ids that steer the model instead of adding text, `eos_ids` among them.
        eos_ids: ascending ids that end a text, at least one.
        size: V, the width of the model's logits; ids from `num_tokens` on are padding and always forbidden.
        leading_space: what the tokenizer's own decoder does to the space that opens a whole text.
        special_text: (id, text) of special tokens that a grammar may name, as they are written in a prompt; ascending.
        readable: the bytes that automata read of id t at t: its own, or those of a special token with a text. Empty for
            ids that no automaton ever reads: other special tokens, and bytes that are in no UTF-8 text.
        spelled: the bytes of id t in a constrained text at t: special tokens with a text are written out, since none
            comes but where the constraint names it. Ends of the text are not.
        fingerprint: SHA-256 of all the above.
    """

    tokens: tuple[bytes, ...]
    special_ids: frozenset[int]
    eos_ids: tuple[int, ...]
    size: int
    leading_space: LeadingSpace = LeadingSpace.KEEP
    special_text: tuple[tuple[int, str], ...] = ()
    readable: tuple[bytes, ...] = field(init=False)
    spelled: tuple[bytes, ...] = field(init=False)
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
        if not self.special_ids.issuperset(token for token, _ in self.special_text):
            raise ModelLoadError("only special tokens may have special texts")
        object.__setattr__(self, "eos_ids", tuple(sorted(set(self.eos_ids))))
        self._name_specials()
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

    def _name_specials(self) -> None:
        readable = [b"" if SPECIAL_MARK in text else text for text in self.tokens]
        spelled = list(self.tokens)
        for token, text in self.special_text:
            if token not in self.eos_ids:
                readable[token], spelled[token] = special_bytes(token), text.encode()
        object.__setattr__(self, "readable", tuple(readable))
        object.__setattr__(self, "spelled", tuple(spelled))

    def _hash(self) -> str:
        ids = (self.size, self.eos_ids, sorted(self.special_ids))
        digest = hashlib.sha256(repr((*ids, self.leading_space.value, self.special_text)).encode())
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
        texts, special, named = _texts(description)
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
        special_text=tuple((token, texts[token]) for token in sorted(named) if token < count and texts[token]),
    )


def _texts(description: dict[str, Any]) -> tuple[dict[int, str], set[int], set[int]]:
    """The literal text of every id, the ids that add no text, and those of them that stand for a text in a prompt."""
    model = description["model"]
    pieces = model["vocab"]
    if isinstance(pieces, dict):
        texts = {int(token): str(text) for text, token in pieces.items()}
        unknown = pieces.get(model.get("unk_token"))
    else:  # Unigram: [piece, score] in order of ids
        texts = {token: str(text) for token, (text, _) in enumerate(pieces)}
        unknown = model.get("unk_id")
    added_tokens = description.get("added_tokens") or ()
    texts.update((added["id"], added["content"]) for added in added_tokens)
    named = {added["id"] for added in added_tokens if added["special"]}
    return texts, named if unknown is None else named | {int(unknown)}, named - {unknown}
