"""Logits arithmetic: sampling parameters, token masks, keyed draws, penalties, draft trees and their verification.

Invariant: nothing here knows a model, a tokenizer or a wire format; every function maps arrays to arrays.
"""
