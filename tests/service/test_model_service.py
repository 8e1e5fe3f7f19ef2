"""ModelService over a real channel."""

from __future__ import annotations

import dataclasses
from importlib import metadata

import grpc
import pytest

from service.v1 import generation_pb2
from service.v1 import model_pb2 as pb

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_the_model_and_every_limit_are_told(server):
    (model,) = (await server.models.ListModels(pb.ListModelsRequest())).models
    assert (model.name, model.architecture, model.device, model.dtype) == ("fake", "fake", "cpu", "float32")
    assert model.vocab_size == 512  # the tokenizer's, not the padded width of the logits
    assert list(model.eos_token_ids) == [0, 2]
    assert model.has_chat_template
    assert (list(model.drafters), model.draft_tokens, model.tree_width) == (["forced", "ngram"], 8, 2)
    assert model.verifier == "walk"
    assert model.server_version == metadata.version("espalier-llm")
    unset = [field.name for field in pb.Limits.DESCRIPTOR.fields if not getattr(model.limits, field.name)]
    assert unset == []
    assert (model.limits.context_length, model.limits.max_samples) == (128, 16)


@pytest.mark.parametrize("text", ["", "Name a tree.", "Straße 東京 🌳", "<|im_start|>x"])
@pytest.mark.parametrize("special", [False, True])
async def test_tokenising_and_back(server, text, special):
    tokenized = await server.models.Tokenize(pb.TokenizeRequest(text=text, add_special_tokens=special))
    assert tuple(tokenized.ids) == await server.model.tokenizer.encode(text, add_special_tokens=special)
    assert b"".join(tokenized.tokens).decode() == text.replace("<|im_start|>", "")
    for skip in (False, True):
        back = await server.models.Detokenize(pb.DetokenizeRequest(ids=tokenized.ids, skip_special_tokens=skip))
        assert back.text == (text.replace("<|im_start|>", "") if skip else text)


async def test_ids_outside_the_vocabulary_and_other_models_are_refused(server):
    for request, message in (
        (pb.DetokenizeRequest(ids=[1, 512]), r"ids\[1\]: token id 512 is outside the vocabulary"),
        (pb.DetokenizeRequest(ids=[1], model="gpt"), "model: 'gpt' is not served here"),
        (pb.DetokenizeRequest(ids=[1] * ((1 << 20) + 1)), "ids: 1048577 ids exceed the limit"),
    ):
        with pytest.raises(grpc.aio.AioRpcError, match=message) as caught:
            await server.models.Detokenize(request)
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(grpc.aio.AioRpcError, match="is not served here"):
        await server.models.Tokenize(pb.TokenizeRequest(text="ab", model="gpt"))


async def test_a_model_without_template_says_so_and_refuses_chats(run_server, model_files):
    async with run_server(files=dataclasses.replace(model_files, chat_template=None)) as server:
        (model,) = (await server.models.ListModels(pb.ListModelsRequest())).models
        assert not model.has_chat_template
        turns = [generation_pb2.ChatMessage(role="user", content="hi")]
        chat = generation_pb2.GenerateRequest(chat=generation_pb2.ChatPrompt(messages=turns))
        with pytest.raises(grpc.aio.AioRpcError, match="send the prompt as text") as caught:
            await server.generation.Generate(chat)
        assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION
