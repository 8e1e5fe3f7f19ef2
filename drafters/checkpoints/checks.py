"""Does a head belong to this target? Width, vocabulary and tokenizer, and the name that it was trained for.

Invariant: what can be compared is compared before a token is drafted. A name alone proves nothing, since people rename
directories: it is a warning, everything else is an error.
"""

from __future__ import annotations

import logging
from pathlib import Path, PurePath

import torch
from tokenizers import Tokenizer

from decoding.errors import ModelLoadError
from drafters.checkpoints.config import HeadConfig
from drafters.heads.target import TargetModel

log = logging.getLogger(__name__)

_MEND = "use a head that was trained for this target"


def check_width(what: str, found: int, target: TargetModel, directory: Path) -> None:
    """Raise ModelLoadError where ``found`` is not the target's hidden size."""
    if found != target.hidden_size:
        raise ModelLoadError(
            f"{directory}: {what} is {found}, but the hidden size of {target.name} is {target.hidden_size}; {_MEND}"
        )


def check_vocabulary(config: HeadConfig, target: TargetModel, directory: Path) -> None:
    """Raise ModelLoadError where the head speaks of another vocabulary than the target.

    Sizes are compared where config.json gives one, and every token where the head brings a tokenizer.json.
    """
    if "vocab_size" in config and config.integer("vocab_size") != target.vocab_size:
        raise ModelLoadError(
            f"{directory}: vocab_size is {config.integer('vocab_size')}, but {target.name} has a vocabulary of "
            f"{target.vocab_size}; {_MEND}"
        )
    own = directory / "tokenizer.json"
    if own.is_file() and target.tokenizer is not None:
        compare_tokenizers(own, target.tokenizer)


def compare_tokenizers(own: Path, other: Path) -> None:
    """Raise ModelLoadError where two tokenizer.json files give a token different ids, naming the token.

    A draft shares ids with its target, so equal size is not enough.
    """
    if own.samefile(other) or own.read_bytes() == other.read_bytes():
        return
    mine, theirs = _vocabulary(own), _vocabulary(other)
    different = [token for token in mine.keys() | theirs.keys() if mine.get(token) != theirs.get(token)]
    if different:
        token = min(different, key=lambda token: (mine.get(token, theirs.get(token, 0)), token))
        raise ModelLoadError(
            f"{own} is another tokenizer than {other}: they differ in {len(different)} tokens, first in {token!r} (id "
            f"{mine.get(token, 'none')} against {theirs.get(token, 'none')}); {_MEND}"
        )


def warn_of_other_target(trained_for: str, target: TargetModel, directory: Path) -> None:
    """Log a warning where the head names another model than the one that it is to draft for."""
    name = PurePath(trained_for).name
    if name and name.lower() != PurePath(target.name).name.lower():
        log.warning(
            "%s was trained for %r and drafts for %r: shapes fit, but guesses are poor if these are different models",
            directory,
            trained_for,
            target.name,
        )


def check_draft_vocabulary(target_ids: torch.Tensor, target: TargetModel, directory: Path) -> None:
    """Raise ModelLoadError where the ids [Vd] of a draft vocabulary are outside the target's, or come twice."""
    low, high = int(target_ids.min()), int(target_ids.max())
    if low < 0 or high >= target.vocab_size:
        raise ModelLoadError(
            f"{directory}: tensor 'd2t' leads to token id {low if low < 0 else high}, but {target.name} has "
            f"{target.vocab_size} tokens; {_MEND}"
        )
    if len(set(target_ids.tolist())) != len(target_ids):
        raise ModelLoadError(
            f"{directory}: tensor 'd2t' leads to the same token id twice; it must hold offsets (target id minus draft "
            "id). Fetch the head again"
        )


def _vocabulary(path: Path) -> dict[str, int]:
    try:
        vocabulary: dict[str, int] = Tokenizer.from_file(str(path)).get_vocab(with_added_tokens=True)
    except Exception as error:  # tokenizers raises bare Exception
        raise ModelLoadError(f"{path} cannot be read ({error}); fetch it again") from error
    return vocabulary
