"""A seeded decoder of 0.1 million weights with a byte-level BPE tokenizer, in a Hugging Face style directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM

TINY_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 520,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "hidden_act": "silu",
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
"""Its logits are wider than the tokenizer, as in many real models."""

TINY_VOCABULARY = 512
TINY_SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TINY_CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TINY_CORPUS = (
    "An espalier is a tree trained along a frame, so that its branches grow where the gardener wants them to be.",
    "The quick brown fox jumps over the lazy dog while the other animals are watching from the edge of the forest.",
    "She asked for the answer in a structured form: a name, a number, a list of places and whether it was true or not.",
    '{"name": "Ada Lovelace", "age": 36, "email": "ada@example.com", "tags": ["mathematics", "engine"], "ok": true}',
    '{"type": "object", "properties": {"city": {"type": "string"}, "population": {"type": "integer"}}}',
    '[{"id": 1, "value": 0.5, "status": "open"}, {"id": 2, "value": -1.25, "status": "closed"}, null, false, true]',
    "Numbers such as 0, 12, 345, 6789 and 3.14159; dates such as 2024-02-29; prices such as 9.99 euros.",
    "Is the station far from here? No, it is only a short walk: turn left at the church and follow the river.",
    "The results were measured on a machine with two cores, and the measurements were repeated several times.",
    "Straße, naïve, café, 東京, Ελλάδα, Москва, 🌳🌲 and other words that need more than one byte for a letter.",
)


def write_tiny_model(directory: Path, seed: int, overrides: dict[str, Any]) -> None:
    config = {**TINY_CONFIG, **overrides}
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
    _tiny_tokenizer().save(str(directory / "tokenizer.json"))
    options = {"eos_token": "<|im_end|>", "bos_token": "<|im_start|>", "chat_template": TINY_CHAT_TEMPLATE}
    (directory / "tokenizer_config.json").write_text(json.dumps(options), encoding="utf-8")
    ends = {"eos_token_id": [0, 2]}
    (directory / "generation_config.json").write_text(json.dumps(ends), encoding="utf-8")

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(directory), dtype=torch.float32)
        for name, parameter in model.named_parameters():
            # transformers initialises to tiny matrices and plain norms and biases, under which wrong code looks right.
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5)
            else:
                torch.nn.init.normal_(parameter, mean=1.0 if name.endswith("weight") else 0.0, std=0.2)
    weights = {name: value for name, value in model.state_dict().items() if name not in model.all_tied_weights_keys}
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})


def _tiny_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=TINY_VOCABULARY,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in TINY_SPECIAL_TOKENS],
        show_progress=False,
    )
    tokenizer.train_from_iterator(TINY_CORPUS, trainer)
    return tokenizer
