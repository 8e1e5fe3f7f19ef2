"""Keys of the prefix cache: a chain of SHA-256 over a tenant salt and the token ids of full blocks.

    key_0 = H(salt)    key_{i+1} = H(key_i || tokens of block i as little-endian int64)

A cryptographic hash, because a predictable one lets a caller collide with another's prompt (CVE-2025-25183); a salt
per tenant, because the timing of a hit tells what others asked (CVE-2025-46570). Invariant: equal keys mean equal
tenant and equal tokens from the start of the sequence, which the pool confirms by comparing tokens on every hit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.kv_cache import BLOCK_SIZE


def root_key(tenant: str) -> bytes:
    """Key of the empty prefix of a tenant (32 bytes)."""
    return hashlib.sha256(b"espalier prefix cache\0" + tenant.encode()).digest()


def next_key(key: bytes, block_tokens: Sequence[int]) -> bytes:
    """Key of the prefix that one more full block extends (32 bytes)."""
    assert len(block_tokens) == BLOCK_SIZE
    return hashlib.sha256(key + np.asarray(block_tokens, dtype="<i8").tobytes()).digest()


@dataclass(slots=True)
class PrefixChain:
    """The keys of one sequence's full blocks, extended as its tokens become known. ``keys[i]`` names blocks 0..i."""

    root: bytes
    keys: list[bytes]

    @classmethod
    def of_tenant(cls, tenant: str) -> PrefixChain:
        """The chain of a sequence without blocks."""
        return cls(root=root_key(tenant), keys=[])

    def extend(self, tokens: Sequence[int], num_blocks: int) -> None:
        """Make ``keys`` cover the first ``num_blocks`` blocks of ``tokens``."""
        for block in range(len(self.keys), num_blocks):
            start = block * BLOCK_SIZE
            self.keys.append(next_key(self.parent(block), tokens[start : start + BLOCK_SIZE]))

    def parent(self, block: int) -> bytes:
        """Key of the prefix before ``block``."""
        return self.keys[block - 1] if block else self.root
