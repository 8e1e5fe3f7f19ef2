"""How a client reaches its server: gRPC channel options, retries and timeouts.

Invariant: a call is tried again only while nothing of an answer has arrived, and only where the caller asked for it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from service.client.errors import InvalidArgumentError

DEFAULT_ADDRESS: Final = "127.0.0.1:50051"
DEFAULT_TIMEOUT: Final = 600.0
"""Seconds for a whole call, queueing and streaming included; long, because the server bounds its own queue."""
MAX_RETRIES: Final = 4
"""gRPC itself caps a call at five attempts."""

ChannelOptions: TypeAlias = Sequence[tuple[str, Any]]
LOOPBACK: Final = ("127.", "localhost:", "[::1]:", "ipv4:127.", "ipv6:[::1]", "unix:")


def channel_options(address: str, *, retries: int, extra: ChannelOptions) -> list[tuple[str, Any]]:
    """Channel options of both APIs. Raises InvalidArgumentError where `retries` is outside [0, 4]."""
    if not 0 <= retries <= MAX_RETRIES:
        raise InvalidArgumentError(f"retries: {retries} is outside [0, {MAX_RETRIES}]", "retries")
    options: list[tuple[str, Any]] = [
        # The server bounds its answers (tokens, samples, batch items), so the client adds no bound of its own.
        ("grpc.max_receive_message_length", -1),
        # gRPC would send even loopback traffic to the proxy of the environment.
        ("grpc.enable_http_proxy", 0 if address.startswith(LOOPBACK) else 1),
    ]
    if retries:
        options.append(("grpc.service_config", json.dumps(_retry_config(retries))))
    return [*extra, *options]  # of two equal names gRPC takes the first


def deadline(timeout: float | None, default: float) -> float | None:
    """Seconds for gRPC: `timeout`, or the client's default where it is None; infinity means no deadline."""
    seconds = default if timeout is None else timeout
    return None if math.isinf(seconds) else seconds


def _retry_config(retries: int) -> dict[str, Any]:
    """A gRPC service config (gRFC A6): gRPC retries a call only until the first part of an answer arrives."""
    policy = {
        "maxAttempts": retries + 1,
        "initialBackoff": "0.2s",
        "maxBackoff": "5s",
        "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE"],
    }
    return {"methodConfig": [{"name": [{}], "retryPolicy": policy}]}
