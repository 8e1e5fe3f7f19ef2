"""What a server serves. Invariant: every field of the protobuf messages Model and Limits has its namesake here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Every count and size that the server bounds."""

    context_length: int
    max_samples: int
    max_batch_items: int
    max_waiting_requests: int
    max_waiting_tokens: int
    max_stop_strings: int
    max_stop_string_bytes: int
    max_logprobs: int
    max_constraint_bytes: int
    max_choices: int
    max_message_bytes: int
    compile_timeout_s: float
    compile_memory_bytes: int
    kv_cache_tokens: int
    max_text_bytes: int
    max_chat_messages: int
    max_tenant_bytes: int
    max_logit_bias: int
    max_bad_words: int
    max_concurrent_rpcs: int
    max_pattern_bytes: int
    max_choice_bytes: int
    max_schema_depth: int
    max_schema_nodes: int
    compile_cpu_s: float
    max_grammar_bytes: int
    max_draft_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One served model; `parameters` counts its weights, `drafters` are those that a request may name, and
    `draft_tokens` and `tree_width` are what one gets that does not say. `verifier` is "walk" or "rejection".
    """

    name: str
    architecture: str
    parameters: int
    dtype: str
    device: str
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    has_chat_template: bool
    limits: Limits
    server_version: str
    drafters: tuple[str, ...]
    draft_tokens: int
    tree_width: int
    verifier: str
