"""Counter-based randomness: the noise of a token is a pure function of (seed, sample index, position, token id).

A draw is the argmax over the candidates of scaled logit + Gumbel noise (the Gumbel-max trick: Gumbel 1954; Maddison et
al. 2014), which is a draw from their softmax. A row has one 64-bit key, the BLAKE2b hash of the first three numbers;
token t's noise is output t of the SplitMix64 stream that starts at that key (Steele, Lea, Flood 2014), and any output
of that stream is reached at once. Invariant: a token's noise depends neither on the other candidates, nor on the batch,
the device or the dtype of the logits, so removing a candidate changes a draw only where that candidate would have won.
"""

from __future__ import annotations

import hashlib
import struct

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]

_GOLDEN = 0x9E3779B97F4A7C15  # odd, nearest to 2^64 / golden ratio: the stride of the stream


def row_key(seed: int, sample_index: int, position: int, stream: bytes = b"") -> int:
    """The 64-bit key of one row; all three in ``range(2**64)``.

    ``stream`` (at most 16 bytes, BLAKE2b's personalisation) separates noise for other ends than the target's draw.
    """
    packed = struct.pack("<QQQ", seed, sample_index, position)
    return int.from_bytes(hashlib.blake2b(packed, digest_size=8, person=stream).digest(), "little")


def strides(tokens: npt.NDArray[np.int64]) -> Bits:
    """Distance of each token's output from the start of a row's stream; the part of its bits that no key enters."""
    return (tokens.astype(np.uint64) + np.uint64(1)) * np.uint64(_GOLDEN)


def mix(keys: Bits | np.uint64, strides: Bits) -> Bits:
    """64 random bits per token: SplitMix64's finaliser of key + stride (arithmetic modulo 2^64), broadcast."""
    bits = strides + keys
    bits ^= bits >> 30
    bits *= 0xBF58476D1CE4E5B9
    bits ^= bits >> 27
    bits *= 0x94D049BB133111EB
    bits ^= bits >> 31
    return bits


def uniform(bits: Bits) -> Floats:
    """The middle of one of 2^52 equal cells of (0, 1), named by the 52 high bits: never 0 or 1, exact in float64."""
    return ((bits >> 12).astype(np.float64) + 0.5) * 2.0**-52


def clock(uniforms: Floats) -> Floats:
    """Standard exponential times, -log(u), by inversion; between 1.1e-16 and 36.8."""
    return -np.log(uniforms)


def gumbel(uniforms: Floats) -> Floats:
    """Standard Gumbel noise, -log of the clock; between -3.7 and 36.8."""
    return -np.log(clock(uniforms))
