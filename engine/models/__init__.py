"""Causal language models over the paged KV cache."""
