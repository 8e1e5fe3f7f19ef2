"""Prompts from the wire to token ids: text, chat messages, or ids as they are.

Invariant: sizes are checked before work that grows with them, and a prompt that comes out leaves room in the context.
"""

from __future__ import annotations

from collections.abc import Iterable

from decoding.errors import InvalidRequestError
from service.limits import check_at_most
from service.serving_model import ServingModel
from service.structure import shown_tools
from service.v1 import generation_pb2 as pb
from service.v1.common_pb2 import Constraint

ROLES = ("system", "user", "assistant", "tool")


async def read_prompt(message: pb.GenerateRequest, model: ServingModel) -> tuple[int, ...]:
    """The prompt's token ids. Raises InvalidRequestError, and PreconditionError for a chat without a template."""
    match message.WhichOneof("prompt"):
        case "text":
            field, ids = "text", await _text_prompt(message.text, model)
        case "tokens":
            field, ids = "tokens.ids", _token_prompt(message.tokens, model)
        case "chat":
            field, ids = "chat", await _chat_prompt(message.chat, message.constraint, model)
        case _:
            raise InvalidRequestError("prompt", "is missing; set one of text, tokens, chat")
    if not ids:
        raise InvalidRequestError(field, "is empty; a prompt needs at least one token")
    _check_room(field, len(ids), model)
    return ids


def check_ids(field: str, ids: Iterable[int], model: ServingModel) -> None:
    """Raise InvalidRequestError where an id is outside the tokenizer's vocabulary."""
    size = model.vocabulary.num_tokens
    for index, token in enumerate(ids):
        if token >= size:
            raise InvalidRequestError(f"{field}[{index}]", f"token id {token} is outside the vocabulary [0, {size})")


async def _text_prompt(text: str, model: ServingModel) -> tuple[int, ...]:
    check_at_most("text", len(text.encode()), model.limits.max_text_bytes, "bytes")
    return await model.tokenizer.encode_prompt(text) if text else ()


def _token_prompt(tokens: pb.TokenPrompt, model: ServingModel) -> tuple[int, ...]:
    _check_room("tokens.ids", len(tokens.ids), model)
    check_ids("tokens.ids", tokens.ids, model)
    return tuple(tokens.ids)


async def _chat_prompt(chat: pb.ChatPrompt, constraint: Constraint, model: ServingModel) -> tuple[int, ...]:
    field = "chat.messages"
    if not chat.messages:
        raise InvalidRequestError(field, "is empty; send at least one message")
    check_at_most(field, len(chat.messages), model.limits.max_chat_messages, "messages")
    for index, turn in enumerate(chat.messages):
        if turn.role not in ROLES:
            roles = ", ".join(ROLES)
            raise InvalidRequestError(f"{field}[{index}].role", f"{turn.role!r} is unknown; use one of {roles}")
        if not turn.content and turn.role != "assistant":
            problem = f"is empty; only the assistant may say nothing, give the {turn.role}'s text"
            raise InvalidRequestError(f"{field}[{index}].content", problem)
    size = sum(len(turn.content.encode()) for turn in chat.messages)
    check_at_most(field, size, model.limits.max_text_bytes, "bytes")
    sizes = [len(tool.description.encode()) + len(tool.parameters.encode()) for tool in constraint.tool_calls.tools]
    check_at_most("constraint.tool_calls.tools", sum(sizes), model.limits.max_text_bytes, "bytes")
    messages = [{"role": turn.role, "content": turn.content} for turn in chat.messages]
    return await model.tokenizer.encode_chat(messages, shown_tools(constraint))


def _check_room(field: str, count: int, model: ServingModel) -> None:
    context = model.card.context_length
    if count >= context:
        mend = f"shorten the prompt to at most {context - 1}"
        raise InvalidRequestError(field, f"{count} tokens leave no room in the context of {context}; {mend}")
