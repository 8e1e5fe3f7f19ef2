"""What a caller may ask of sampling, checked once at construction.

Invariant: a `SamplingParams` that exists is valid for every model; what depends on the vocabulary is checked by
`check_vocabulary`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral
from types import MappingProxyType

from decoding.errors import InvalidRequestError

MAX_LOGPROBS = 20
MAX_LOGIT_BIAS = 1024
MAX_BAD_WORDS = 256
MAX_BAD_WORD_TOKENS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Sampling of one request. Defaults draw from the model's own distribution.

    Attributes:
        max_tokens: most tokens to generate, at least 1.
        min_tokens: end-of-sequence tokens are forbidden before this many tokens were generated.
        temperature: logits are divided by it; 0 takes the most likely token (lowest id among equals).
        top_k: keep the k most likely tokens and all that equal the last of them; 0 keeps all.
        top_p: keep the smallest set of the most likely tokens whose probability reaches this, and all that equal the
            last of them (Holtzman et al. 2020); in (0, 1].
        min_p: drop tokens less likely than this share of the most likely one; in [0, 1].
        repetition_penalty: divides positive and multiplies negative logits of tokens seen in prompt or output
            (Keskar et al. 2019); 1 is off.
        presence_penalty: subtracted once from logits of tokens seen in the output; in [-2, 2].
        frequency_penalty: subtracted once per occurrence in the output; in [-2, 2].
        logit_bias: added to the logits of these token ids, first of all stages; in [-100, 100].
        bad_words: token-id sequences that are never completed, not even where they begin in the prompt.
        seed: 64-bit key of the draws; equal seeds give equal texts.
        logprobs: None for none, 0 for the chosen token's, k for the k most likely beside it.
        ignore_eos: end-of-sequence tokens do not end the text and are never drawn.
        finish_within_limit: a constrained text is complete within `max_tokens`; not beside `bad_words`, which could
            forbid the only end.
    """

    max_tokens: int = 256
    min_tokens: int = 0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    bad_words: tuple[tuple[int, ...], ...] = ()
    seed: int = 0
    logprobs: int | None = None
    ignore_eos: bool = False
    finish_within_limit: bool = False

    def __post_init__(self) -> None:
        _whole("max_tokens", self.max_tokens, 1, 1 << 20)
        _whole("min_tokens", self.min_tokens, 0, self.max_tokens)
        _between("temperature", self.temperature, 0.0, 100.0)
        _whole("top_k", self.top_k, 0, 1 << 30)
        _between("top_p", self.top_p, 0.0, 1.0)
        if self.top_p == 0.0:
            raise InvalidRequestError("sampling.top_p", "is 0; use a value in (0, 1], or temperature 0 for greedy")
        _between("min_p", self.min_p, 0.0, 1.0)
        _between("repetition_penalty", self.repetition_penalty, 0.01, 100.0)
        _between("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _between("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        _whole("seed", self.seed, 0, (1 << 64) - 1)
        if self.logprobs is not None:
            _whole("logprobs", self.logprobs, 0, MAX_LOGPROBS)
        _between("logit_bias", len(self.logit_bias), 0, MAX_LOGIT_BIAS, what="number of entries")
        for token, bias in self.logit_bias.items():
            _between(f"logit_bias[{token}]", bias, -100.0, 100.0)
        _between("bad_words", len(self.bad_words), 0, MAX_BAD_WORDS, what="number of entries")
        for index, word in enumerate(self.bad_words):
            _between(f"bad_words[{index}]", len(word), 1, MAX_BAD_WORD_TOKENS, what="number of tokens")
        if self.finish_within_limit and self.bad_words:
            message = "cannot be promised beside sampling.bad_words, which may forbid the end; leave one of them unset"
            raise InvalidRequestError("sampling.finish_within_limit", message)
        object.__setattr__(self, "logit_bias", MappingProxyType(dict(self.logit_bias)))

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        values["logit_bias"] = dict(self.logit_bias)
        return _rebuild, (values,)

    def check_vocabulary(self, size: int) -> None:
        """Raise InvalidRequestError where a token id named here is not in ``range(size)``."""
        for token in self.logit_bias:
            _token("logit_bias", token, size)
        for index, word in enumerate(self.bad_words):
            for token in word:
                _token(f"bad_words[{index}]", token, size)


def _rebuild(values: dict[str, object]) -> SamplingParams:
    return SamplingParams(**values)  # type: ignore[arg-type]


def _whole(name: str, value: int, low: int, high: int) -> None:
    if not isinstance(value, Integral):
        raise InvalidRequestError(f"sampling.{name}", f"value {value!r} is no whole number")
    _between(name, value, low, high)


def _between(name: str, value: float, low: float, high: float, what: str = "value") -> None:
    if not low <= value <= high:  # so that NaN is outside, too
        raise InvalidRequestError(f"sampling.{name}", f"{what} {value!r} is outside [{low}, {high}]")


def _token(name: str, token: int, size: int) -> None:
    if not 0 <= token < size:
        raise InvalidRequestError(f"sampling.{name}", f"token id {token} is outside the vocabulary [0, {size})")
