"""Prompts and their tokens against transformers' own tokenizer on the same files."""

from __future__ import annotations

import json
import shutil
import threading
import time

import pytest
from tokenizers import Tokenizer, processors
from transformers import AutoTokenizer

from decoding.errors import InvalidRequestError, ModelLoadError, PreconditionError
from engine.loading.directory import read_directory
from service.chat import ChatTemplate
from service.structure import shown_tools
from service.tokenizer import PromptTokenizer
from service.v1.common_pb2 import TOOL_CHOICE_NONE, Constraint, Tool, ToolCalls

CHATS = [
    [{"role": "user", "content": "Name a tree."}],
    [
        {"role": "system", "content": "Be brief: {{ 7 * 7 }} <|im_end|>"},
        {"role": "user", "content": "Straße 東京 🌳"},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "  two spaces\n"},
    ],
]
TEMPLATES = {
    "tojson": "{{ messages | tojson }} {{ messages[0] | tojson(indent=2) }} {{ '<é&>' | tojson }}",
    "loops": "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.role }}{% break %}{% endfor %}",
    "generation": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
    "namespace": "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
    "time": "{{ strftime_now('%Y') }}",
    "special": "{{ bos_token }}|{{ eos_token }}|{{ pad_token }}|{{ tools is none }}|{{ add_generation_prompt }}",
    "blocks": "{%- for m in messages %}\n  {% if m.role == 'user' %}\n  {{- m.content }}\n  {% endif %}\n{% endfor %}",
}


@pytest.fixture
def variant(tiny_model_dir, tmp_path):
    """Factory of copies of the tiny model's files with a changed tokenizer_config.json or post-processor."""

    def make(*, bos_processor=False, **options):
        directory = shutil.copytree(tiny_model_dir(), tmp_path / f"model{len(list(tmp_path.iterdir()))}")
        path = directory / "tokenizer_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | options))
        if bos_processor:
            tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
            tokenizer.post_processor = processors.TemplateProcessing(
                single="<|im_start|> $A", special_tokens=[("<|im_start|>", 1)]
            )
            tokenizer.save(str(directory / "tokenizer.json"))
        return read_directory(directory, "tiny"), AutoTokenizer.from_pretrained(directory)

    return make


@pytest.mark.parametrize("bos_processor", [False, True])
@pytest.mark.parametrize("text", ["Name a tree.", " x", "Straße 東京 🌳", "<|im_start|>user", "a<|im_end|>b", "0123"])
async def test_text_prompts_are_tokenised_as_transformers_does(variant, bos_processor, text):
    files, reference = variant(bos_processor=bos_processor)
    tokenizer = PromptTokenizer(files)
    assert list(await tokenizer.encode_prompt(text)) == reference(text)["input_ids"]
    assert await tokenizer.encode(text, add_special_tokens=True) == await tokenizer.encode_prompt(text)
    plain = reference(text, add_special_tokens=False)["input_ids"]
    assert list(await tokenizer.encode(text, add_special_tokens=False)) == plain


async def test_a_bos_token_that_only_the_configuration_asks_for_is_added_once(variant):
    tokenizer = PromptTokenizer(variant(add_bos_token=True)[0])
    (bos, *rest) = await tokenizer.encode_prompt("tree")
    assert (bos, tuple(rest)) == (1, await tokenizer.encode("tree", add_special_tokens=False))


@pytest.mark.parametrize("chat", CHATS)
@pytest.mark.parametrize("bos_processor", [False, True])
async def test_chats_are_rendered_and_tokenised_as_transformers_does(variant, chat, bos_processor):
    files, reference = variant(bos_processor=bos_processor)
    expected = reference.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    assert list(await PromptTokenizer(files).encode_chat(chat)) == expected


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
@pytest.mark.parametrize("chat", CHATS)
def test_templates_see_what_they_see_in_transformers(variant, template, chat):
    _, reference = variant()
    expected = reference.apply_chat_template(chat, chat_template=template, add_generation_prompt=True, tokenize=False)
    special = {name: text for name, text in reference.special_tokens_map.items() if isinstance(text, str)}
    assert ChatTemplate(template, special).render(chat) == expected


TOOL_TEMPLATE = (
    "{% if tools %}{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}{% endif %}"
    "{% for message in messages %}{{ message['content'] }}{% endfor %}"
)


def test_tools_are_shown_as_in_transformers(variant):
    _, reference = variant()
    message = Constraint(
        tool_calls=ToolCalls(
            tools=[Tool(name="f", description="Adds", parameters='{"type": "object"}'), Tool(name="g")]
        )
    )
    tools = shown_tools(message)
    expected = reference.apply_chat_template(
        CHATS[0], tools=tools, chat_template=TOOL_TEMPLATE, add_generation_prompt=True, tokenize=False
    )
    assert ChatTemplate(TOOL_TEMPLATE, {}).render(CHATS[0], tools) == expected
    assert '"name": "f"' in expected
    assert '"description": "Adds"' in expected
    assert "tools" not in ChatTemplate(TOOL_TEMPLATE, {}).render(CHATS[0])
    message.tool_calls.choice = TOOL_CHOICE_NONE
    assert shown_tools(message) is None
    assert shown_tools(Constraint(regex="a")) is None


def test_a_template_can_refuse_messages():
    template = ChatTemplate("{{ raise_exception('roles must alternate') }}", {})
    with pytest.raises(InvalidRequestError, match=r"chat.messages: .*roles must alternate"):
        template.render(CHATS[0])


@pytest.mark.parametrize(
    "attack",
    ["{{ messages.__class__.__mro__ }}", "{{ messages.append(1) }}", "{{ ''.__class__.__subclasses__() }}"],
)
def test_a_template_cannot_leave_its_sandbox(attack):
    with pytest.raises(InvalidRequestError, match="refuses"):
        ChatTemplate(attack, {}).render([{"role": "user", "content": "x"}])


def test_a_broken_template_is_a_broken_model():
    with pytest.raises(ModelLoadError, match="chat template is broken"):
        ChatTemplate("{% if %}", {})


async def test_a_model_without_template_takes_no_chats(variant):
    tokenizer = PromptTokenizer(variant(chat_template=None)[0])
    assert not tokenizer.has_chat_template
    with pytest.raises(PreconditionError, match="send the prompt as text"):
        await tokenizer.encode_chat(CHATS[0])


async def test_decoding_is_the_tokenizers_own(variant):
    files, reference = variant()
    tokenizer = PromptTokenizer(files)
    ids = await tokenizer.encode("<|im_start|>Straße 🌳", add_special_tokens=False)
    for skip in (False, True):
        assert await tokenizer.decode(ids, skip_special_tokens=skip) == reference.decode(
            list(ids), skip_special_tokens=skip
        )


async def test_words_are_spelled_with_and_without_a_space_before_them(variant):
    files, reference = variant()
    words = await PromptTokenizer(files).encode_words(["tree", "tree", "🌳"])
    expected = [reference(text, add_special_tokens=False)["input_ids"] for text in ("tree", " tree", "🌳", " 🌳")]
    assert [list(word) for word in words] == expected


async def test_tokenising_lets_other_threads_run(variant):
    tokenizer = PromptTokenizer(variant()[0])
    ticks, stop = [], threading.Event()

    def tick():
        while not stop.is_set():
            ticks.append(None)
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        ids = await tokenizer.encode("the quick brown fox " * 50_000, add_special_tokens=True)
        during_encode = len(ticks)
        await tokenizer.decode(ids, skip_special_tokens=True)
    finally:
        stop.set()
        thread.join()
    assert during_encode > 20
    assert len(ticks) > during_encode
