"""Every choice that shapes an engine, complete at construction.

Invariant: an `EngineConfig` names what is wanted; what "auto" came to is reported by `ModelCard`, never written back.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from decoding.errors import InvalidRequestError
from drafters.speculation import MAX_DRAFT_TOKENS, Offer, read_drafters

LoadFormat = Literal["auto", "dummy"]
Implementation = Literal["auto", "native", "transformers"]
DType = Literal["auto", "float64", "float32", "bfloat16", "float16"]
VerifierName = Literal["walk", "rejection"]

MIN_CONTEXT_LENGTH = 3
"""A beginning-of-sequence token, one token of prompt and one of output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Configuration of one engine.

    Attributes:
        model: None for the default model; a local directory, a GGUF file, or a hub id.
        cache_dir: where fetched and converted models are kept; None for the user's cache directory.
        load_format: "dummy" gives random weights for the model's config.
        implementation: "native" (own decoder), "transformers" (its modelling code), "auto" (native where it can).
        dtype: compute and KV dtype; "auto" is bfloat16 where the device computes it natively, else float32.
        device: "auto" (cuda where there is one), "cpu", "cuda" or "cuda:N".
        attention: name of the attention backend.
        context_length: most tokens per sequence; None for the model's own.
        kv_cache_tokens: size of the KV cache in tokens; None takes `kv_memory_fraction` of what is free after loading,
            at most what `max_running` sequences of full context can fill.
        kv_memory_fraction: share of free memory for the KV cache, in (0, 1].
        max_batch_tokens: token budget of one step; None is 256 on a CPU and 2,048 on a GPU.
        max_running: most sequences that compute at the same time.
        max_waiting_requests: requests in the queue past which new ones are refused.
        max_waiting_tokens: prompt tokens in the queue past which new ones are refused.
        chunked_prefill: split prompts over steps; off computes each prompt in one step, whatever its length.
        prefix_cache: reuse the KV of earlier prompts and outputs.
        watermark: share of the blocks that admission leaves free for running sequences to grow.
        threads: compute threads; None for up to the number of physical cores, fewer while others need the cores too. A
            fixed number makes timings and last bits reproducible.
        seed: seed of dummy weights.
        drafters: names of the drafters to load, with "+" between them: forced, alternatives, suffix, ngram; or none.
        draft_model: a smaller model with the same tokenizer (as for `model`), or self:N for the model's own first N
            layers; loads the drafter "model".
        draft_heads: directories of draft heads, with commas between them: EAGLE, EAGLE-3, speculators, Medusa or MTP;
            load the drafters "eagle", "medusa" and "mtp".
        draft_depth: longest guess, in tokens, of drafters with a model.
        draft_tokens: guesses per sequence and step where a request does not say.
        tree_width: guesses below one node of a draft tree where a request does not say.
        max_draft_tokens: most guesses per sequence and step that a request may ask for.
        reproducible_drafts: fix the drafters and the number of guesses of requests that leave the choice to the server,
            instead of choosing what pays by measured times, so that batches have the same shapes in every run.
        verifier: "walk" commits the same text whatever was guessed; "rejection" lets drafters with a model draw their
            guesses, of which it accepts more at a temperature near 1: texts of the same distribution, but for a seed
            not the same ones.
    """

    model: str | None = None
    cache_dir: Path | None = None
    load_format: LoadFormat = "auto"
    implementation: Implementation = "auto"
    dtype: DType = "auto"
    device: str = "auto"
    attention: str = "auto"
    context_length: int | None = None
    kv_cache_tokens: int | None = None
    kv_memory_fraction: float = 0.3
    max_batch_tokens: int | None = None
    max_running: int = 32
    max_waiting_requests: int = 256
    max_waiting_tokens: int = 1_000_000
    chunked_prefill: bool = True
    prefix_cache: bool = True
    watermark: float = 0.01
    threads: int | None = None
    seed: int = 0
    drafters: str = "forced+ngram"
    draft_model: str | None = None
    draft_heads: str | None = None
    draft_depth: int = 5
    draft_tokens: int = 8
    tree_width: int = 2
    max_draft_tokens: int = 64
    reproducible_drafts: bool = False
    verifier: VerifierName = "walk"

    def __post_init__(self) -> None:
        if self.context_length is not None and self.context_length < MIN_CONTEXT_LENGTH:
            raise InvalidRequestError(
                "context_length", f"is {self.context_length}; it must be at least {MIN_CONTEXT_LENGTH}"
            )
        at_least_one = ("draft_depth", "max_running", "max_waiting_requests", "max_waiting_tokens")
        optional = ("kv_cache_tokens", "max_batch_tokens", "threads")
        for name in (*at_least_one, *optional):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidRequestError(name, f"is {value}; it must be at least 1")
        if not 0.0 < self.kv_memory_fraction <= 1.0:
            raise InvalidRequestError("kv_memory_fraction", f"is {self.kv_memory_fraction}; it must be in (0, 1]")
        if not 0.0 <= self.watermark < 1.0:
            raise InvalidRequestError("watermark", f"is {self.watermark}; it must be in [0, 1)")
        self._check_drafting()

    def _check_drafting(self) -> None:
        read_drafters(self.drafters)
        if not 0 <= self.max_draft_tokens <= MAX_DRAFT_TOKENS:
            problem = f"is {self.max_draft_tokens}; it must be in [0, {MAX_DRAFT_TOKENS}]"
            raise InvalidRequestError("max_draft_tokens", problem)
        if not 0 <= self.draft_tokens <= self.max_draft_tokens:
            problem = f"is {self.draft_tokens}; it must be in [0, max_draft_tokens], which is {self.max_draft_tokens}"
            raise InvalidRequestError("draft_tokens", problem)
        if not 1 <= self.tree_width <= max(1, self.max_draft_tokens):
            problem = f"is {self.tree_width}; it must be in [1, max_draft_tokens], which is {self.max_draft_tokens}"
            raise InvalidRequestError("tree_width", problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """What was loaded, with every "auto" resolved.

    Attributes:
        name: what clients call the model.
        architecture: the model type of its config.json, e.g. ``llama``.
        parameters: number of weights, tied ones counted once.
        dtype: e.g. ``bfloat16``.
        device: e.g. ``cpu``.
        vocab_size: width of the logits.
        context_length: most tokens per sequence, prompt and output together.
        kv_cache_tokens: size of the KV cache.
        max_batch_tokens: token budget of one step.
        eos_token_ids: ids that end a text.
        offer: drafters that requests may name, and bounds of their trees.
        verifier: what decides about guesses.
    """

    name: str
    architecture: str
    parameters: int
    dtype: str
    device: str
    vocab_size: int
    context_length: int
    kv_cache_tokens: int
    max_batch_tokens: int
    eos_token_ids: tuple[int, ...]
    offer: Offer
    verifier: VerifierName = "walk"
