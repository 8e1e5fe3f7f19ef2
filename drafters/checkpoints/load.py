"""One door for every kind of head: what a directory holds is told from its config and the names of its tensors.

Invariant: what is returned fits the target; everything that does not is a ModelLoadError that names the mend.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from decoding.errors import ModelLoadError
from drafters.checkpoints.config import HeadConfig
from drafters.checkpoints.eagle import read_eagle
from drafters.checkpoints.eagle3 import read_eagle3, read_speculators
from drafters.checkpoints.medusa import PREFIX, read_medusa
from drafters.checkpoints.mtp import QWEN_PREFIX, read_mtp
from drafters.checkpoints.tensors import HeadTensors
from drafters.heads.base import RecurrentHead
from drafters.heads.medusa import MedusaHeads
from drafters.heads.target import TargetModel

Head = RecurrentHead | MedusaHeads

READERS: Mapping[str, Callable[[Path, TargetModel], Head]] = MappingProxyType(
    {
        "eagle": read_eagle,
        "eagle3": read_eagle3,
        "speculators": read_speculators,
        "medusa": read_medusa,
        "mtp": read_mtp,
    }
)


def load_head(directory: Path, target: TargetModel) -> Head:
    """The head in ``directory``, of whatever format."""
    return READERS[detect_format(directory)](directory, target)


def detect_format(directory: Path) -> str:
    """A key of `READERS`; raises ModelLoadError where the directory holds none of them."""
    if "speculators_model_type" in HeadConfig.read(directory, required=False):
        return "speculators"
    names = HeadTensors(directory).names
    if any(name.startswith(PREFIX) for name in names) or "0.0.linear.weight" in names:
        return "medusa"
    if any(name.endswith(".eh_proj.weight") or name.startswith(QWEN_PREFIX) for name in names):
        return "mtp"
    if any(name.endswith(".hidden_norm.weight") or name.startswith("midlayer.") for name in names):
        return "eagle3"
    if "fc.weight" in names:
        return "eagle"
    shown = ", ".join(sorted(names)[:3])
    raise ModelLoadError(
        f"{directory} holds no head that Espalier knows ({', '.join(READERS)}): its tensors are named like {shown}; "
        "name the directory of the head, not that of a model"
    )
