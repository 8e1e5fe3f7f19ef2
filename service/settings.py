"""Everything that `espalier serve` can be told.

Invariant: settings that exist are complete and consistent; nothing reads the environment or the command line later.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from decoding.errors import InvalidRequestError
from engine.config import EngineConfig
from grammars.compiling.pool import PoolOptions
from service.limits import ServiceLimits
from service.logs import LogFormat

LogLevel = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Settings of one server.

    Attributes:
        address: where to listen, host:port (port 0 takes a free one) or unix:path. There is no authentication, so think
            before you leave the loopback interface.
        drain_seconds: how long running requests may take to end after SIGTERM or SIGINT.
        stall_seconds: an engine that makes no progress for so long while it has work is given up.
        keepalive_seconds: a silent connection is pinged after this time.
        keepalive_timeout_seconds: and closed where the ping is not answered within this time.
        min_ping_interval_seconds: clients that ping more often than this are disconnected.
        metrics_port: serve Prometheus metrics on this port of 127.0.0.1 (0 takes a free one); without it nowhere.
        log_level: least level of log lines on standard error.
        log_format: "text", or "json" for one JSON object a line.
        log_prompts: put the requests themselves into the log.
        engine: model, device and memory.
        limits: bounds of requests.
        compiling: constraint compiler.
    """

    address: str = "127.0.0.1:50051"
    drain_seconds: float = 30.0
    stall_seconds: float = 120.0
    keepalive_seconds: float = 60.0
    keepalive_timeout_seconds: float = 20.0
    min_ping_interval_seconds: float = 10.0
    metrics_port: int | None = None
    log_level: LogLevel = "info"
    log_format: LogFormat = "text"
    log_prompts: bool = False
    engine: EngineConfig = field(default_factory=EngineConfig)
    limits: ServiceLimits = field(default_factory=ServiceLimits)
    compiling: PoolOptions = field(default_factory=PoolOptions)

    def __post_init__(self) -> None:
        for name in ("stall_seconds", "keepalive_seconds", "keepalive_timeout_seconds", "min_ping_interval_seconds"):
            if not getattr(self, name) > 0:
                raise InvalidRequestError(name, f"is {getattr(self, name)}; it must be above 0")
        if not self.drain_seconds >= 0:
            raise InvalidRequestError("drain_seconds", f"is {self.drain_seconds}; it must be at least 0")
        if self.metrics_port is not None and not 0 <= self.metrics_port < 1 << 16:
            raise InvalidRequestError("metrics_port", f"is {self.metrics_port}; it must be a port")
