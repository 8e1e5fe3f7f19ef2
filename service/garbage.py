"""When the engine's process looks for garbage in reference cycles.

Grammars are many small objects that live long, and a full collection visits all of them: tens of milliseconds in the
middle of a step if the interpreter chooses the moment. So full collections wait until there is nothing to compute, and
come between two steps where that takes too long. Young objects are collected as ever. Invariant: no full collection
begins inside a step.
"""

from __future__ import annotations

import gc

YOUNG_OBJECTS = 2_000
YOUNG_COLLECTIONS = 10
NEVER = 1 << 30
IDLE_AFTER = 5
"""Collections of the middle generation after which a full one is worth while, if there is nothing else to do."""
BUSY_AFTER = 500
"""Those after which it is due in any case."""


def settle() -> None:
    """Take what there is for permanent (a model, a vocabulary), and full collections into our own hands."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, YOUNG_COLLECTIONS, NEVER)


def collect_when_due(*, is_idle: bool) -> bool:
    """Between two steps: a full collection, where it is due. Returns whether there was one."""
    is_due = gc.get_count()[2] >= (IDLE_AFTER if is_idle else BUSY_AFTER)
    if is_due:
        gc.collect()
    return is_due
