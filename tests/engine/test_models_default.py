"""The default model, fetched and converted by the product's own path."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from tokenizers import Tokenizer, pre_tokenizers
from transformers import AutoModelForCausalLM

from engine.loading.checkpoint import Checkpoint
from engine.loading.files import ModelFiles
from engine.loading.weights import load_model
from tests.paged import PagedRunner, PagedText, Part

pytestmark = pytest.mark.model

NEW_TOKENS = 64
QUESTIONS = (
    "What is the capital of France?",
    "Write a haiku about rain.",
    "List three prime numbers.",
    "Explain what a compiler does.",
    "Translate 'good morning' to Spanish.",
    "Who wrote Hamlet?",
    "Give me a JSON object that describes a book.",
    "How many legs does a spider have?",
    "Summarise: The cat sat on the mat because it was warm.",
    "What is 12 times 12?",
    "Name a city in Japan and a food that it is known for.",
    "Why is the sky blue?",
    "Write a Python function that reverses a string.",
    "What is photosynthesis?",
    "Tell me a short joke.",
    "Is the number 91 prime? Answer step by step.",
    "Describe the taste of an apple.",
    "What should I pack for a week in the mountains?",
    "Complete the sentence: Once upon a time, there was",
    "Convert 100 degrees Fahrenheit to Celsius.",
)


@pytest.fixture(scope="module")
def tokenizer(default_model_files: ModelFiles) -> Tokenizer:
    return Tokenizer.from_file(str(default_model_files.tokenizer))


def test_card(default_model_files):
    assert default_model_files.name == "SmolLM2-135M-Instruct"
    assert default_model_files.eos_token_ids == (2,)
    assert default_model_files.bos_token_id is None
    assert "You are a helpful AI assistant named SmolLM" in default_model_files.chat_template
    assert default_model_files.gguf.is_file()


def test_special_tokens(tokenizer):
    assert tokenizer.get_vocab_size() == 49152
    expected = {"<|endoftext|>": 0, "<|im_start|>": 1, "<|im_end|>": 2, "<repo_name>": 3, "<empty_output>": 16}
    added = {token.content: index for index, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    assert len(added) == 17
    assert expected.items() <= added.items()
    ids = tokenizer.encode("<|im_start|>user\nHi<|im_end|>\n").ids
    assert (ids[0], ids[-2]) == (1, 2)
    assert tokenizer.decode(ids) == "user\nHi\n"


def test_digits_are_tokens_of_their_own(tokenizer):
    text = "In 2024, 3.14 and x15"
    tokens = tokenizer.encode(text).tokens
    assert [token for token in tokens if any(c.isdigit() for c in token)] == list("202431415")


MISSING_BYTES = {0x04, 0x06, 0x13, 0x14, 0x16, 0x1D, 0xC0, 0xC1, 0xF1, 0xF2, *range(0xF5, 0x100)}
"""The model's vocabulary has no token for these: some control characters, and planes 4 to 11 of Unicode."""


def test_bytes_without_a_token(tokenizer):
    alphabet = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    vocabulary, missing = tokenizer.get_vocab(), set()
    for byte in range(0x80):
        ((spelled, _),) = alphabet.pre_tokenize_str(chr(byte))
        missing |= set() if spelled in vocabulary else {byte}
    for code in range(0x80, 0x110000, 0x40):
        if not 0xD800 <= code < 0xE000:
            ((spelled, _),) = alphabet.pre_tokenize_str(chr(code))
            missing |= {byte for byte, part in zip(chr(code).encode(), spelled, strict=True) if part not in vocabulary}
    assert missing == MISSING_BYTES & {*range(0xC0), *range(0xC2, 0xF5)}


@settings(max_examples=200, deadline=None)
@given(text=st.text().filter(lambda text: not MISSING_BYTES.intersection(text.encode())))
def test_any_text_survives(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_weights_are_the_dequantised_gguf(default_model_files):
    reader = gguf.GGUFReader(default_model_files.gguf)
    stored = {tensor.name: tensor for tensor in reader.tensors}
    (path,) = default_model_files.directory.glob("*.safetensors")
    names = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.layers.0.mlp.down_proj.weight": "blk.0.ffn_down.weight",
        "model.layers.29.self_attn.v_proj.weight": "blk.29.attn_v.weight",
        "model.norm.weight": "output_norm.weight",
    }
    with safe_open(path, framework="np") as file:
        for name, source in names.items():
            want = gguf.dequantize(stored[source].data, stored[source].tensor_type)
            np.testing.assert_array_equal(file.get_tensor(name), want)
        # llama.cpp stores the two halves of a head's 64 rows interleaved.
        want = gguf.dequantize(stored["blk.7.attn_k.weight"].data, stored["blk.7.attn_k.weight"].tensor_type)
        got = file.get_tensor("model.layers.7.self_attn.k_proj.weight")
        order = [64 * head + half + 2 * i for head in range(3) for half in range(2) for i in range(32)]
        np.testing.assert_array_equal(got, want[order])


def test_parameters(default_model_files):
    source = Checkpoint(default_model_files.directory, torch.float32, torch.device("cpu"))
    source.take("model.embed_tokens.weight", (49152, 576))
    model = load_model(default_model_files, dtype=torch.bfloat16, device=torch.device("cpu"))
    assert model.parameters == 134_515_008
    assert model.context_length == 8192


@pytest.mark.slow
def test_greedy_texts_are_those_of_transformers(default_model_files, tokenizer):
    """All prompts by induction (at every position transformers takes the same token), some literally."""
    plain = AutoModelForCausalLM.from_pretrained(default_model_files.directory, dtype=torch.float32)
    model = load_model(default_model_files, dtype=torch.float32, device=torch.device("cpu"))
    prompts = [
        tokenizer.encode(f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n").ids
        for question in QUESTIONS
    ]
    runner = PagedRunner(model, num_blocks=len(prompts) * 8)
    texts = [PagedText() for _ in prompts]
    rows = runner.step(*(Part(text, prompt) for text, prompt in zip(texts, prompts, strict=True)))
    got = [[int(logits[-1].argmax())] for logits in rows]
    for _ in range(NEW_TOKENS - 1):
        rows = runner.step(*(Part(text, ids[-1:]) for text, ids in zip(texts, got, strict=True)))
        for ids, logits in zip(got, rows, strict=True):
            ids.append(int(logits[-1].argmax()))
    with torch.inference_mode():
        for prompt, ids in zip(prompts, got, strict=True):
            want = plain(torch.tensor([prompt + ids[:-1]])).logits[0, len(prompt) - 1 :].argmax(-1)
            assert ids == want.tolist(), tokenizer.decode(ids)
        for prompt, ids in list(zip(prompts, got, strict=True))[:2]:
            want = plain.generate(torch.tensor([prompt]), max_new_tokens=NEW_TOKENS, do_sample=False, eos_token_id=-1)
            assert ids == want[0, len(prompt) :].tolist()
