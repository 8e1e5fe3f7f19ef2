"""The model, its paged KV cache, and the step that plans, computes, draws and commits tokens for many sequences.

Invariant: the engine sees token ids, never text, and knows no wire format.
"""
