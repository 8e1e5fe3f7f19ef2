"""ModelService: what is served, its limits, its tokenizer.

Invariant: every limit that the server enforces is told.
"""

from __future__ import annotations

from importlib import metadata
from typing import Any

import grpc

from decoding.params import MAX_LOGIT_BIAS
from service.limits import check_at_most
from service.prompts import check_ids
from service.readiness import Readiness
from service.requests import MAX_WORDS
from service.serving_model import ServingModel
from service.v1 import model_pb2 as pb
from service.v1 import model_pb2_grpc

Context = grpc.aio.ServicerContext[Any, Any]


class ModelService(model_pb2_grpc.ModelServiceServicer):
    """See service/v1/model.proto."""

    def __init__(self, readiness: Readiness) -> None:
        self._readiness = readiness

    async def ListModels(self, request: pb.ListModelsRequest, context: Context) -> pb.ListModelsResponse:
        """The one model."""
        with self._readiness.serving() as model:
            return pb.ListModelsResponse(models=[_describe(model)])

    async def Tokenize(self, request: pb.TokenizeRequest, context: Context) -> pb.TokenizeResponse:
        """Text to ids and the bytes of each."""
        with self._readiness.serving() as model:
            model.check_name(request.model)
            check_at_most("text", len(request.text.encode()), model.limits.max_text_bytes, "bytes")
            ids = await model.tokenizer.encode(request.text, add_special_tokens=request.add_special_tokens)
            return pb.TokenizeResponse(ids=ids, tokens=[model.vocabulary.tokens[token] for token in ids])

    async def Detokenize(self, request: pb.DetokenizeRequest, context: Context) -> pb.DetokenizeResponse:
        """Ids to the text that the tokenizer makes of them."""
        with self._readiness.serving() as model:
            model.check_name(request.model)
            check_at_most("ids", len(request.ids), model.limits.max_text_bytes, "ids")
            check_ids("ids", request.ids, model)
            text = await model.tokenizer.decode(request.ids, skip_special_tokens=request.skip_special_tokens)
            return pb.DetokenizeResponse(text=text)


def _describe(model: ServingModel) -> pb.Model:
    card = model.card
    return pb.Model(
        name=card.name,
        architecture=card.architecture,
        parameters=card.parameters,
        dtype=card.dtype,
        device=card.device,
        vocab_size=model.vocabulary.num_tokens,
        eos_token_ids=card.eos_token_ids,
        has_chat_template=model.tokenizer.has_chat_template,
        limits=_limits(model),
        server_version=metadata.version("espalier-llm"),
        drafters=card.offer.loaded,
        draft_tokens=card.offer.draft_tokens,
        tree_width=card.offer.tree_width,
        verifier=card.verifier,
    )


def _limits(model: ServingModel) -> pb.Limits:
    limits, constraint, engine = model.limits, model.constraint_limits, model.engine_config
    return pb.Limits(
        context_length=model.card.context_length,
        kv_cache_tokens=model.card.kv_cache_tokens,
        max_draft_tokens=model.card.offer.max_draft_tokens,
        max_waiting_requests=engine.max_waiting_requests,
        max_waiting_tokens=engine.max_waiting_tokens,
        max_samples=limits.max_samples,
        max_batch_items=limits.max_batch_items,
        max_stop_strings=limits.max_stop_strings,
        max_stop_string_bytes=limits.max_stop_string_bytes,
        max_logprobs=limits.max_logprobs,
        max_message_bytes=limits.max_message_bytes,
        max_text_bytes=limits.max_text_bytes,
        max_chat_messages=limits.max_chat_messages,
        max_tenant_bytes=limits.max_tenant_bytes,
        max_concurrent_rpcs=limits.max_concurrent_rpcs,
        max_logit_bias=MAX_LOGIT_BIAS,
        max_bad_words=MAX_WORDS,
        max_constraint_bytes=constraint.text_bytes,
        max_pattern_bytes=constraint.pattern_bytes,
        max_grammar_bytes=constraint.grammar_bytes,
        max_schema_depth=constraint.depth,
        max_schema_nodes=constraint.nodes,
        max_choices=constraint.choices,
        max_choice_bytes=constraint.choice_bytes,
        compile_timeout_s=constraint.wall_s,
        compile_cpu_s=constraint.cpu_s,
        compile_memory_bytes=constraint.memory_bytes,
    )
