"""What a worker measures of one schema; what crosses from workers to the benchmark.

Invariant: times are wall time unless their name says cpu; cpu times are of the worker's one thread, so that a busy
machine shows as wall time without cpu time.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.float32]
NO_TIMES: Times = np.zeros(0, dtype=np.float32)


class Status(enum.Enum):
    """How far an engine came with a schema."""

    DONE = "done"
    REFUSED = "refused"
    """It did not compile, or had no first mask."""
    COMPILE_TIMEOUT = "compile timeout"
    WALK_TIMEOUT = "walk timeout"
    CRASHED = "crashed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """Compilation to the first mask, seconds."""

    compile_s: float
    first_mask_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What an engine said of one instance.

    Attributes:
        is_valid: what the file says.
        accepted: of the text as written; None where it broke off (an error, or too many tokens).
        ordered_accepted: of the text in schema order; None where there was none or it was not asked for.
        where: the text up to the token that was refused, or why it broke off.
    """

    is_valid: bool
    accepted: bool | None
    ordered_accepted: bool | None = None
    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Of each token that was walked, microseconds: its mask, mask and advance together, and the latter in cpu time."""

    mask_us: Times = field(default_factory=lambda: NO_TIMES)
    step_us: Times = field(default_factory=lambda: NO_TIMES)
    cpu_us: Times = field(default_factory=lambda: NO_TIMES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Walked:
    """One pass over all instances of a schema. Texts that are tried in schema order as well count in `steps` too."""

    outcomes: tuple[Outcome, ...]
    steps: Steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """An engine's error, with the name of its class."""

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One schema under one engine.

    Attributes:
        repeat_s: seconds from the text of a schema that is known to its first mask; None where an engine has no cache.
        first, second: the same pass twice, with the same compiled grammar.
    """

    name: str
    status: Status
    error: str = ""
    compiled: Compiled | None = None
    repeat_s: float | None = None
    first: Walked | None = None
    second: Walked | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Memory of compiled schemas that are kept with the masks of their instances.

    `own_bytes` is what the engine itself counts, or None where it does not say.
    """

    schemas: int
    rss_bytes: int
    own_bytes: int | None
