"""What a caller can get wrong, over a real channel: status, field, mend; and the server goes on."""

from __future__ import annotations

import json
import math

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from service.v1 import common_pb2, constraint_pb2, model_pb2
from service.v1 import generation_pb2 as pb

pytestmark = pytest.mark.asyncio(loop_scope="module")

INVALID = grpc.StatusCode.INVALID_ARGUMENT
Constraint = common_pb2.Constraint


def sampling(**options):
    return {"text": "ab", "sampling": pb.SamplingOptions(**options)}


def schema(value):
    return {"text": "ab", "constraint": Constraint(json_schema=value if isinstance(value, str) else json.dumps(value))}


def grammar(text, **options):
    return {"text": "ab", "constraint": Constraint(grammar=common_pb2.Grammar(text=text, **options))}


def speculation(**options):
    return {"text": "ab", "speculation": pb.SpeculationOptions(**options)}


def tools(*listed, **options):
    calls = common_pb2.ToolCalls(
        tools=[common_pb2.Tool(name=name, parameters=text) for name, text in listed], **options
    )
    return {"text": "ab", "constraint": Constraint(tool_calls=calls)}


def bad_words(*words):
    return sampling(bad_words=pb.BadWords(words=words))


def chat(*messages):
    turns = [pb.ChatMessage(role=role, content=content) for role, content in messages]
    return {"chat": pb.ChatPrompt(messages=turns)}


def nested(levels):
    return '{"items":' * levels + "true" + "}" * levels


# name: (fields of the request, field that is named, part of the message)
REQUESTS = {
    "no prompt": ({}, "prompt", "set one of text, tokens, chat"),
    "empty text": ({"text": ""}, "text", "at least one token"),
    "empty token list": ({"tokens": pb.TokenPrompt()}, "tokens.ids", "at least one token"),
    "empty chat": (chat(), "chat.messages", "at least one message"),
    "unknown role": (chat(("wizard", "hi")), "chat.messages[0].role", "use one of system, user"),
    "no role": (chat(("", "hi")), "chat.messages[0].role", "use one of system, user"),
    "user without content": (chat(("user", "hi"), ("user", "")), "chat.messages[1].content", "give the user's text"),
    "system without content": (chat(("system", ""), ("user", "hi")), "chat.messages[0].content", "is empty"),
    "tool without content": (chat(("tool", "")), "chat.messages[0].content", "is empty"),
    "prompt longer than the context": ({"text": "x y " * 500}, "text", "shorten the prompt to at most 127"),
    "tokens longer than the context": ({"tokens": pb.TokenPrompt(ids=[5] * 128)}, "tokens.ids", "at most 127"),
    "id outside the vocabulary": ({"tokens": pb.TokenPrompt(ids=[5, 512])}, "tokens.ids[1]", "[0, 512)"),
    "largest id": ({"tokens": pb.TokenPrompt(ids=[2**32 - 1])}, "tokens.ids[0]", "outside the vocabulary"),
    "unknown model": ({"text": "ab", "model": "gpt"}, "model", "use 'fake' or leave it empty"),
    "n is 0": ({"text": "ab", "n": 0}, "n", "at least 1"),
    "n too large": ({"text": "ab", "n": 2**32 - 1}, "n", "exceed the limit of 16"),
    "priority": ({"text": "ab", "priority": 101}, "priority", "outside [-100, 100]"),
    "tenant": ({"text": "ab", "tenant": "é" * 65}, "tenant", "130 bytes exceed the limit of 128"),
    "max_tokens 0": (sampling(max_tokens=0), "sampling.max_tokens", "outside [1,"),
    "min_tokens": (sampling(max_tokens=3, min_tokens=4), "sampling.min_tokens", "outside [0, 3]"),
    "temperature below 0": (sampling(temperature=-0.1), "sampling.temperature", "outside [0.0, 100.0]"),
    "temperature NaN": (sampling(temperature=math.nan), "sampling.temperature", "nan"),
    "temperature infinite": (sampling(temperature=math.inf), "sampling.temperature", "inf"),
    "top_p 0": (sampling(top_p=0.0), "sampling.top_p", "(0, 1]"),
    "top_p NaN": (sampling(top_p=math.nan), "sampling.top_p", "nan"),
    "min_p": (sampling(min_p=1.1), "sampling.min_p", "outside [0.0, 1.0]"),
    "top_k": (sampling(top_k=2**32 - 1), "sampling.top_k", "outside"),
    "repetition_penalty": (sampling(repetition_penalty=0.0), "sampling.repetition_penalty", "outside"),
    "presence_penalty": (sampling(presence_penalty=2.5), "sampling.presence_penalty", "outside [-2.0, 2.0]"),
    "frequency_penalty": (sampling(frequency_penalty=math.nan), "sampling.frequency_penalty", "nan"),
    "logit_bias NaN": (sampling(logit_bias={5: math.nan}), "sampling.logit_bias[5]", "nan"),
    "logit_bias id": (sampling(logit_bias={512: 1.0}), "sampling.logit_bias", "token id 512 is outside"),
    "logit_bias size": (sampling(logit_bias=dict.fromkeys(range(1025), 0.0)), "sampling.logit_bias", "1025"),
    "logprobs": (sampling(logprobs=21), "sampling.logprobs", "exceed the limit of 20"),
    "too many stop strings": (sampling(stop=["x"] * 17), "sampling.stop", "17 stop strings"),
    "empty stop string": (sampling(stop=["x", ""]), "sampling.stop[1]", "is empty"),
    "long stop string": (sampling(stop=["é" * 129]), "sampling.stop[0]", "258 bytes"),
    "too many bad words": (bad_words(*map(str, range(129))), "sampling.bad_words.words", "129 words"),
    "empty bad word": (bad_words("x", ""), "sampling.bad_words.words[1]", "is empty"),
    "long bad word": (bad_words("x y " * 100), "sampling.bad_words.words", "tokens of one word"),
    "unknown drafter": (
        speculation(drafter="oracle"),
        "speculation.drafter",
        "AUTO, NONE or a mix of forced, ngram",
    ),
    "unknown drafter of a mix": (speculation(drafter="forced+"), "speculation.drafter", "'' is no drafter"),
    "NONE in a mix": (speculation(drafter="forced+none"), "speculation.drafter", "'none' is no drafter"),
    "negative draft tokens": (speculation(max_draft_tokens=-1), "speculation.max_draft_tokens", "outside [0, 64]"),
    "too many draft tokens": (
        speculation(max_draft_tokens=2**31 - 1),
        "speculation.max_draft_tokens",
        "ask for less, or raise --max-draft-tokens",
    ),
    "tree without width": (speculation(tree_width=0), "speculation.tree_width", "outside [1, 64]"),
    "tree too wide": (speculation(drafter="NONE", tree_width=65), "speculation.tree_width", "outside [1, 64]"),
    "schema is no JSON": (schema("{"), "constraint.json_schema", ""),
    "schema is no schema": (schema("3"), "constraint.json_schema", ""),
    "schema is impossible": (
        schema({"type": "string", "minLength": 5, "maxLength": 2}),
        "constraint.json_schema",
        "",
    ),
    "schema 10,000 levels deep": (schema(nested(10_000)), "constraint.json_schema", "levels of nesting"),
    "schema too large": (schema({"description": "x" * (1 << 20)}), "constraint.json_schema", "bytes"),
    "empty schema": (schema(""), "constraint.json_schema", "is empty"),
    "regex does not parse": ({"text": "ab", "constraint": Constraint(regex="(a")}, "constraint.regex", ""),
    "regex too long": ({"text": "ab", "constraint": Constraint(regex="a" * 20_000)}, "constraint.regex", "bytes"),
    "no choices": ({"text": "ab", "constraint": Constraint(choices=common_pb2.Choices())}, "constraint.choices", "one"),
    "grammar with an undefined rule": (
        grammar('root ::= "a"\nx ::= [b] digit'),
        "constraint.grammar",
        "uses the rule 'digit' in 'x' (line 2), but does not define it",
    ),
    "grammar without an end": (grammar('root ::= "a" root'), "constraint.grammar", "never ends in the rule 'root'"),
    "grammar without its start": (grammar("a ::= [a]", start="b"), "constraint.grammar", "its rules are 'a'"),
    "grammar 30,000 levels deep": (
        grammar("root ::= " + "(" * 30_000 + '"a"' + ")" * 30_000),
        "constraint.grammar",
        "more than 50 deep (line 1)",
    ),
    "no tools": (tools(), "constraint.tool_calls.tools", "at least one tool"),
    "two tools of one name": (tools(("f", ""), ("f", "")), "constraint.tool_calls.tools[1].name", "tools[0]"),
    "a tool with a bad schema": (tools(("f", ""), ("g", "{")), "constraint.tool_calls.tools[1].parameters", ""),
    "a tool whose arguments are no object": (
        tools(("f", "true")),
        "constraint.tool_calls.tools[0].parameters",
        "object",
    ),
    "a tool that is not there": (tools(("f", ""), name="g"), "constraint.tool_calls.name", "use the name of one"),
    "a tool and a choice": (
        tools(("f", ""), name="f", choice=common_pb2.TOOL_CHOICE_AUTO),
        "constraint.tool_calls.choice",
        "leave one of them unset",
    ),
    "unknown tool choice": (tools(("f", ""), choice=9), "constraint.tool_calls.choice", "unknown value 9"),
    "no tags": (
        {"text": "ab", "constraint": Constraint(structural_tags=common_pb2.StructuralTags())},
        "constraint.structural_tags.tags",
        "at least one tag",
    ),
    "a tag without content": (
        {
            "text": "ab",
            "constraint": Constraint(
                structural_tags=common_pb2.StructuralTags(tags=[common_pb2.StructuralTag(begin="<")])
            ),
        },
        "constraint.structural_tags.tags[0]",
        "set json_schema",
    ),
    "options of reasoning alone": (
        {"text": "ab", "constraint": Constraint(reasoning=common_pb2.Reasoning(), best_effort=True)},
        "constraint",
        "has no kind",
    ),
    "reasoning that ends the answer": (
        {"text": "ab", "constraint": Constraint(regex="a", reasoning=common_pb2.Reasoning(end="<|im_end|>"))},
        "constraint.reasoning.end",
        "ends the model's answer",
    ),
    "grammar too large": (grammar("root ::= [a]" + " " * (1 << 16)), "constraint.grammar", "bytes; the limit is"),
    "grammar that no lexer can read": (
        grammar('start: A "b"\nA: /[a-z]+/', notation=common_pb2.GRAMMAR_NOTATION_LARK),
        "constraint.grammar",
        'can never put "b" after A',
    ),
    "grammar that reads files": (
        grammar("start: A\n%import .secret.A", notation=common_pb2.GRAMMAR_NOTATION_LARK),
        "constraint.grammar",
        "imports more than terminals of common (line 2)",
    ),
    "unknown ready grammar": (grammar("@yaml"), "constraint.grammar", "use @json"),
    "white space of a regex": (
        {"text": "ab", "constraint": Constraint(regex="a", whitespace=common_pb2.WHITESPACE_POLICY_SPACED)},
        "constraint.whitespace",
        "leave it unset",
    ),
    "unknown white space": (
        {"text": "ab", "constraint": Constraint(json_object=common_pb2.JsonObject(), whitespace=99)},
        "constraint.whitespace",
        "unknown value 99",
    ),
    "options without a constraint": (
        {"text": "ab", "constraint": Constraint(best_effort=True)},
        "constraint",
        "no kind",
    ),
    "order of a handle": (
        {"text": "ab", "constraint": Constraint(compiled="x", property_order=common_pb2.PROPERTY_ORDER_ANY)},
        "constraint",
        "fixes property_order",
    ),
    "dialect of a schema": (
        {"text": "ab", "constraint": Constraint(json_schema="{}", regex_dialect=common_pb2.REGEX_DIALECT_ECMA)},
        "constraint.regex_dialect",
        "leave it unset",
    ),
    "options of a handle": (
        {"text": "ab", "constraint": Constraint(compiled="x", best_effort=True)},
        "constraint",
        "leave them unset",
    ),
}


def field_and_code(error):
    status = rpc_status.from_call(error)
    bad_request = error_details_pb2.BadRequest()
    fields = [
        violation.field
        for packed in status.details
        if packed.Unpack(bad_request)
        for violation in bad_request.field_violations
    ]
    return error.code(), fields


@pytest.mark.parametrize(("fields", "field", "message"), REQUESTS.values(), ids=REQUESTS)
async def test_a_wrong_request_is_refused_by_field_and_mend(server, fields, field, message):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await server.generation.Generate(pb.GenerateRequest(**fields))
    assert field_and_code(caught.value) == (INVALID, [field])
    assert caught.value.details().startswith(f"{field}: ")
    assert message in caught.value.details()
    assert (await server.generation.Generate(pb.GenerateRequest(text="ab"))).samples[0].text == "ab"


async def test_a_stream_names_the_field_within_its_own_request(server):
    call = server.generation.GenerateStream(pb.GenerateStreamRequest(request=pb.GenerateRequest(text="")))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    assert field_and_code(caught.value) == (INVALID, ["request.text"])


async def test_a_batch_without_items_and_one_with_too_many(server):
    for count, message in ((0, "at least one request"), (65, "exceed the limit of 64")):
        batch = pb.GenerateBatchRequest(requests=[pb.GenerateRequest(text="ab")] * count)
        with pytest.raises(grpc.aio.AioRpcError, match=message) as caught:
            await server.generation.GenerateBatch(batch)
        assert field_and_code(caught.value) == (INVALID, ["requests"])


async def test_an_unknown_handle_is_a_failed_precondition(server):
    message = pb.GenerateRequest(text="ab", constraint=Constraint(compiled="nothing"))
    with pytest.raises(grpc.aio.AioRpcError, match="compile it again") as caught:
        await server.generation.Generate(message)
    assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION


async def test_a_drafter_that_is_not_loaded_is_a_failed_precondition(server):
    message = pb.GenerateRequest(**speculation(drafter="ngram+suffix"))
    with pytest.raises(grpc.aio.AioRpcError, match=r"--drafters forced.ngram.suffix") as caught:
        await server.generation.Generate(message)
    assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION


async def test_a_keyword_that_is_not_enforced_is_unimplemented_unless_best_effort(server):
    unsupported = json.dumps({"type": "string", "pattern": r"^(a|b)\1$"})
    with pytest.raises(grpc.aio.AioRpcError, match="pattern") as caught:
        await server.constraint.Compile(constraint_pb2.CompileRequest(constraint=Constraint(json_schema=unsupported)))
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
    best = Constraint(json_schema=unsupported, best_effort=True)
    response = await server.constraint.Compile(constraint_pb2.CompileRequest(constraint=best))
    assert [item.keyword for item in response.unenforced] == ["pattern"]
    generated = await server.generation.Generate(pb.GenerateRequest(text="ab", constraint=best))
    assert list(generated.unenforced) == list(response.unenforced)


async def test_a_message_above_the_limit_is_grpcs_own_refusal(server):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await server.generation.Generate(pb.GenerateRequest(text="x" * (5 << 20)))
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("pattern", ["((a{1,999}){1,999}){1,999}b", "(.*a.{9000}){3}", "(a|b)*a(a|b){60}"])
async def test_a_regex_that_explodes_costs_its_own_request_only(server, pattern):
    message = pb.GenerateRequest(
        text="ab", constraint=Constraint(regex=pattern), sampling=pb.SamplingOptions(max_tokens=40)
    )
    # Whether it is refused or runs is the grammar compiler's decision; both are within bounds.
    (result,) = (await server.generation.GenerateBatch(pb.GenerateBatchRequest(requests=[message]))).results
    if result.HasField("error"):
        assert (result.error.code, result.error.field) == (INVALID.value[0], "constraint.regex")
    else:
        assert result.response.samples[0].completeness == common_pb2.COMPLETENESS_VALID_PREFIX
    assert (await server.generation.Generate(pb.GenerateRequest(text="ab"))).samples[0].text == "ab"


async def test_bytes_that_are_no_message_are_refused(server):
    invalid_utf8 = b"\x12\x02\xff\xfe"  # field 2, two bytes
    whole = server.channel.unary_unary("/espalier.v1.GenerationService/Generate")
    stream = server.channel.unary_stream("/espalier.v1.GenerationService/GenerateStream")
    for call in (whole(invalid_utf8), whole(b"\xff\xff\xff"), stream(b"\xff").read()):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert field_and_code(caught.value) == (INVALID, ["request"])
    assert (await server.generation.Generate(pb.GenerateRequest(text="ab"))).samples[0].text == "ab"


async def test_a_text_above_the_limit_is_refused_before_it_is_tokenised(server):
    for call, request in (
        (server.generation.Generate, pb.GenerateRequest(text="x" * ((1 << 20) + 1))),
        (server.models.Tokenize, model_pb2.TokenizeRequest(text="x" * ((1 << 20) + 1))),
    ):
        with pytest.raises(grpc.aio.AioRpcError, match="exceed the limit of 1048576") as caught:
            await call(request)
        assert field_and_code(caught.value) == (INVALID, ["text"])


async def test_a_hostile_name_cannot_break_the_trailers(server):
    for name in ("\u6771" * 100_000, "\x00\n\r\x7f" * 1000, "x" * 1_000_000):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await server.generation.Generate(pb.GenerateRequest(text="ab", model=name))
        assert field_and_code(caught.value) == (INVALID, ["model"])


async def test_a_chat_without_template_and_a_compiled_constraint_to_compile(server):
    with pytest.raises(grpc.aio.AioRpcError, match="is compiled already") as caught:
        await server.constraint.Compile(constraint_pb2.CompileRequest(constraint=Constraint(compiled="x")))
    assert field_and_code(caught.value) == (INVALID, ["constraint.compiled"])
    with pytest.raises(grpc.aio.AioRpcError, match="no kind"):
        await server.constraint.Compile(constraint_pb2.CompileRequest())


async def test_unknown_keywords_and_formats_are_annotations_that_are_reported(server):
    annotated = schema({"type": "string", "maxLength": 2, "x-note": 1, "format": "unheard-of"})
    response = await server.generation.Generate(pb.GenerateRequest(**annotated))
    assert {item.pointer for item in response.unenforced} == {"/x-note", "/format"}


async def test_an_assistant_may_have_said_nothing(server):
    turns = chat(("user", "hi"), ("assistant", ""), ("user", "ho"))
    assert (await server.generation.Generate(pb.GenerateRequest(**turns))).samples
