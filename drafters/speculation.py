"""What a request may say about drafting, and what a server offers.

Invariant: a name is spelled in one way (lower case) from here on, and what `Offer.settings` returns stays within what
the server offers.
"""

from __future__ import annotations

from dataclasses import dataclass

from decoding.errors import InvalidRequestError, PreconditionError
from drafters.protocol import AUTO

AUTO_NAME = "auto"
NONE_NAME = "none"
FORCED = "forced"
MODEL_FREE = (FORCED, "alternatives", "suffix", "ngram")
"""Drafters that need no model, in the order of their turns."""
OF_THE_GRAMMAR = (FORCED, "alternatives")
"""Those of them that know what the grammar leaves; drafters with a model act after them, the others last."""
WITH_MODEL = ("eagle", "mtp", "medusa", "model")
"""Drafters that a head or a model has to be loaded for."""
MAX_DRAFT_TOKENS = 256
"""No server may offer more guesses per sequence and step: a tree's visibility mask grows with their square."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """What a request wants. It changes how fast the text comes, not which text, or not its distribution (`rejection`).

    Attributes:
        drafter: "auto", "none", or names of loaded drafters with "+" between them; in any case.
        max_draft_tokens: most guesses per step; None for the server's default, 0 for plain decoding.
        tree_width: most guesses below one node of the tree; None for the server's default.
    """

    drafter: str = AUTO_NAME
    max_draft_tokens: int | None = None
    tree_width: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftSettings:
    """What a sequence gets.

    Attributes:
        mix: names of the drafters, None for the server's choice.
        max_tokens: most guesses per step.
        width: most guesses below one node.
    """

    mix: tuple[str, ...] | None = AUTO
    max_tokens: int = 0
    width: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What a server has loaded, and what requests may ask for.

    Attributes:
        loaded: names of drafters.
        draft_tokens: guesses per sequence and step where a request does not say.
        tree_width: guesses below one node where a request does not say.
        max_draft_tokens: most guesses that a request may ask for, and the widest tree.
    """

    loaded: tuple[str, ...] = ()
    draft_tokens: int = 0
    tree_width: int = 1
    max_draft_tokens: int = 0

    def settings(self, speculation: Speculation) -> DraftSettings:
        """What a request with these wishes gets.

        Raises InvalidRequestError for names that no drafter has and for sizes out of bounds, PreconditionError for
        drafters that are not loaded.
        """
        mix = self._mix(speculation.drafter)
        tokens, width = speculation.max_draft_tokens, speculation.tree_width
        self._check("speculation.max_draft_tokens", tokens, least=0)
        self._check("speculation.tree_width", width, least=1)
        return DraftSettings(
            mix=mix,
            max_tokens=0 if mix == () else self.draft_tokens if tokens is None else tokens,
            width=self.tree_width if width is None else width,
        )

    def _mix(self, drafter: str) -> tuple[str, ...] | None:
        name = drafter.lower()
        if name in ("", AUTO_NAME):
            return AUTO
        if name == NONE_NAME:
            return ()
        names = tuple(dict.fromkeys(name.split("+")))
        for part in names:
            if part not in self.loaded:
                raise self._refusal(part)
        return names

    def _refusal(self, name: str) -> InvalidRequestError | PreconditionError:
        loaded = ", ".join(self.loaded)
        instead = f"AUTO, NONE or a mix of {loaded} with + between them" if loaded else "AUTO or NONE"
        if name in MODEL_FREE:
            flag = "+".join((*self.loaded, name))
            problem = f"speculation.drafter: {name!r} is not loaded"
            return PreconditionError(f"{problem}; use {instead}, or start the server with --drafters {flag}")
        if name in WITH_MODEL:
            flag = "--draft-model" if name == "model" else "--draft-heads"
            return PreconditionError(
                f"speculation.drafter: {name!r} is not loaded; use {instead}, or start the server with {flag}"
            )
        return InvalidRequestError("speculation.drafter", f"{name!r} is no drafter; use {instead}")

    def _check(self, field: str, value: int | None, *, least: int) -> None:
        if value is not None and not least <= value <= max(self.max_draft_tokens, least):
            limits = f"[{least}, {max(self.max_draft_tokens, least)}]"
            raise InvalidRequestError(
                field, f"is {value}, outside {limits}; ask for less, or raise --max-draft-tokens of the server"
            )


def read_drafters(names: str) -> tuple[str, ...]:
    """Names of the drafters to load, from a list with "+" between them; "none" is none of them.

    Raises InvalidRequestError for a name that no drafter has.
    """
    wanted = names.lower().split("+")
    if wanted == [NONE_NAME]:
        return ()
    for name in wanted:
        if name not in MODEL_FREE:
            known = "+".join(MODEL_FREE)
            raise InvalidRequestError("drafters", f"{name!r} is no drafter; name some of {known}, or none")
    return tuple(name for name in MODEL_FREE if name in wanted)
