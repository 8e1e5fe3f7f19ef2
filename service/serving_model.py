"""Everything that answering a request needs, complete once the model is loaded.

Invariant: a `ServingModel` exists only once its engine was built; whether requests may use it, `Readiness` says.
"""

from __future__ import annotations

from dataclasses import dataclass

from decoding.errors import InvalidRequestError
from engine.config import EngineConfig, ModelCard
from grammars.limits import ConstraintLimits
from grammars.vocabulary import Vocabulary
from service.constraints import ConstraintCatalog
from service.engine_client import EngineClient
from service.limits import ServiceLimits
from service.metrics import ServerMetrics
from service.tokenizer import PromptTokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingModel:
    """One loaded model and its limits."""

    card: ModelCard
    vocabulary: Vocabulary
    tokenizer: PromptTokenizer
    engine: EngineClient
    catalog: ConstraintCatalog
    limits: ServiceLimits
    constraint_limits: ConstraintLimits
    engine_config: EngineConfig
    metrics: ServerMetrics
    log_prompts: bool

    def check_name(self, name: str) -> None:
        """Raise InvalidRequestError where a request asks for another model; an empty name asks for this one."""
        if name not in ("", self.card.name):
            raise InvalidRequestError("model", f"{name!r} is not served here; use {self.card.name!r} or leave it empty")
