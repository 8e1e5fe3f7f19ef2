"""Tiny targets, head files under public names, and a plain twin of every head: no cache, no batch, no tree.

The twin is written from the public descriptions of the formats, on the tensors of the file, and shares no code with the
product. For each guess it computes the whole chain of pairs again, under a causal mask.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from drafters.heads.target import TargetModel

WIDE = 48
TARGET_LAYERS = 6
VOCAB = 70
DRAFT_VOCAB = 41
EPS = 1e-5
THETA = 500.0
KINDS = ("eagle", "eagle-bare", "eagle3", "eagle3-late", "eagle3-same", "speculators", "mtp-deepseek", "mtp-qwen")


@pytest.fixture(scope="session")
def target() -> TargetModel:
    source = torch.Generator().manual_seed(1)
    embedding = torch.randn(VOCAB, WIDE, generator=source, dtype=torch.float64)
    output = torch.randn(VOCAB, WIDE, generator=source, dtype=torch.float64) / math.sqrt(WIDE)
    return TargetModel(
        name="tiny-target",
        model_type="llama",
        hidden_size=WIDE,
        vocab_size=VOCAB,
        num_layers=TARGET_LAYERS,
        dtype=torch.float64,
        device=torch.device("cpu"),
        embed=lambda tokens_T: embedding[tokens_T],
        logits=lambda hidden_RE: hidden_RE @ output.T,
    )


@dataclass
class HeadFiles:
    """A head as published: config.json and tensors by name, to be changed before they are written."""

    kind: str
    format: str
    config: dict[str, Any]
    tensors: dict[str, torch.Tensor]
    aux: tuple[int, ...] = ()

    def write(self, directory: Path, *, file: str = "model.safetensors") -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "config.json").write_text(json.dumps(self.config), encoding="utf-8")
        if file.endswith(".safetensors"):
            save_file(self.tensors, directory / file)
        else:
            torch.save(self.tensors, directory / file)
        return directory


def make_files(kind: str, seed: int = 0) -> HeadFiles:
    """One head of each kind; the draft is narrower than the target where the format allows it."""
    source = torch.Generator().manual_seed(seed + 100)
    size = 32 if kind in ("eagle3", "eagle3-late", "speculators") else WIDE
    heads, kv_heads, head_dim, inner = 4, 2, 8, 40

    def matrix(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, generator=source, dtype=torch.float64) / math.sqrt(columns)

    def vector(count: int, mean: float = 1.0) -> torch.Tensor:
        return mean + 0.3 * torch.randn(count, generator=source, dtype=torch.float64)

    def layer(prefix: str, inputs: int, *, bias: bool = False) -> dict[str, torch.Tensor]:
        tensors = {
            f"{prefix}self_attn.q_proj.weight": matrix(heads * head_dim, inputs) * 2,
            f"{prefix}self_attn.k_proj.weight": matrix(kv_heads * head_dim, inputs) * 2,
            f"{prefix}self_attn.v_proj.weight": matrix(kv_heads * head_dim, inputs),
            f"{prefix}self_attn.o_proj.weight": matrix(size, heads * head_dim),
            f"{prefix}mlp.gate_proj.weight": matrix(inner, size),
            f"{prefix}mlp.up_proj.weight": matrix(inner, size),
            f"{prefix}mlp.down_proj.weight": matrix(size, inner),
            f"{prefix}post_attention_layernorm.weight": vector(size),
        }
        if bias:
            tensors |= {f"{prefix}self_attn.{name}_proj.bias": vector(heads * head_dim, 0.0) for name in "q"}
            tensors |= {f"{prefix}self_attn.{name}_proj.bias": vector(kv_heads * head_dim, 0.0) for name in "kv"}
        return tensors

    shape: dict[str, Any] = {
        "hidden_size": size,
        "intermediate_size": inner,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "rms_norm_eps": EPS,
        "rope_theta": THETA,
        "hidden_act": "silu",
        "vocab_size": VOCAB,
        "num_hidden_layers": 1,
    }
    llama = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **shape}

    if kind == "eagle":
        tensors = {
            "embed_tokens.weight": matrix(VOCAB, size) * 3,
            "fc.weight": matrix(size, 2 * size),
            "fc.bias": vector(size, 0.0),
            **layer("layers.0.", size, bias=True),
        }
        return HeadFiles(kind=kind, format="eagle", config={**llama, "qkv_bias": True}, tensors=tensors)
    if kind == "eagle-bare":  # the target's embedding, no biases, two layers of which the second has a norm
        tensors = {"fc.weight": matrix(size, 2 * size), **layer("layers.0.", size), **layer("layers.1.", size)}
        tensors["layers.1.input_layernorm.weight"] = vector(size)
        config = {**llama, "bias": False, "num_hidden_layers": 2}
        return HeadFiles(kind=kind, format="eagle", config=config, tensors=tensors)
    if kind in ("mtp-deepseek", "mtp-qwen"):
        config = {**llama, "num_hidden_layers": TARGET_LAYERS, "num_nextn_predict_layers": 1}
        if kind == "mtp-deepseek":
            prefix = f"model.layers.{TARGET_LAYERS}."
            tensors = {
                "model.embed_tokens.weight": matrix(VOCAB, size),  # of the target, in the same files
                f"{prefix}enorm.weight": vector(size),
                f"{prefix}hnorm.weight": vector(size),
                f"{prefix}eh_proj.weight": matrix(size, 2 * size),
                f"{prefix}shared_head.norm.weight": vector(size),
                f"{prefix}shared_head.head.weight": matrix(VOCAB, size),
                f"{prefix}embed_tokens.weight": matrix(VOCAB, size) * 3,
                **layer(prefix, size),
                f"{prefix}input_layernorm.weight": vector(size),
            }
        else:
            tensors = {
                "model.norm.weight": vector(size),
                "mtp.fc.weight": matrix(size, 2 * size),
                "mtp.pre_fc_norm_embedding.weight": vector(size),
                "mtp.pre_fc_norm_hidden.weight": vector(size),
                "mtp.norm.weight": vector(size),
                **layer("mtp.layers.0.", size, bias=True),
                "mtp.layers.0.input_layernorm.weight": vector(size),
                "mtp.layers.0.self_attn.q_norm.weight": vector(head_dim),
                "mtp.layers.0.self_attn.k_norm.weight": vector(head_dim),
            }
        return HeadFiles(kind=kind, format="mtp", config=config, tensors=tensors)

    aux = (1, 3, 5) if kind != "eagle3-late" else (0, 2, 4, 5)
    first = "layers.0." if kind == "speculators" else "midlayer."
    target_ids = torch.randperm(VOCAB, generator=source)[:DRAFT_VOCAB].sort().values
    drafted = torch.zeros(VOCAB, dtype=torch.bool)
    drafted[target_ids] = True
    tensors = {
        "fc.weight": matrix(size, len(aux) * WIDE),
        **layer(first, 2 * size),
        f"{first}hidden_norm.weight": vector(size),
        f"{first}input_layernorm.weight": vector(size),
        "norm.weight": vector(size),
        "lm_head.weight": matrix(DRAFT_VOCAB, size),
        "d2t": target_ids - torch.arange(DRAFT_VOCAB),
        "t2d": drafted,
    }
    options: dict[str, Any] = {"draft_vocab_size": DRAFT_VOCAB, "target_hidden_size": WIDE}
    if kind == "eagle3-same":  # the target's embedding, its whole vocabulary
        tensors |= {"lm_head.weight": matrix(VOCAB, size)}
        del tensors["d2t"], tensors["t2d"]
        config = {**llama, "architectures": ["LlamaForCausalLMEagle3"], "eagle_aux_hidden_state_layer_ids": list(aux)}
        return HeadFiles(kind=kind, format="eagle3", config=config, tensors=tensors, aux=aux)
    tensors["embed_tokens.weight"] = matrix(VOCAB, size) * 3
    if kind == "eagle3":
        config = {**llama, **options, "eagle_config": {"eagle_aux_hidden_state_layer_ids": list(aux)}}
        return HeadFiles(kind=kind, format="eagle3", config=config, tensors=tensors, aux=aux)
    if kind == "eagle3-late":  # the later options, and a second layer
        tensors |= {f"fc_norm.{index}.weight": vector(WIDE) for index in range(len(aux))}
        tensors |= {**layer("layers.1.", size), "layers.1.input_layernorm.weight": vector(size)}
        tensors["input_norm.weight"] = vector(len(aux) * WIDE)
        late = {"fc_norm": True, "norm_before_fc": True, "norm_output": True, "norm_before_residual": True}
        ids = {"eagle_aux_hidden_state_layer_ids": list(aux)}
        config = {**llama, **options, **late, **ids, "num_hidden_layers": 2}
        return HeadFiles(kind=kind, format="eagle3", config=config, tensors=tensors, aux=aux)
    config = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "speculators_version": "0.3.0",
        "transformer_layer_config": {"model_type": "llama", **shape},
        **options,
        "norm_before_residual": True,
        "eagle_aux_hidden_state_layer_ids": list(aux),
        "speculators_config": {
            "algorithm": "eagle3",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
            "verifier": {"name_or_path": "somebody/tiny-target"},
        },
    }
    return HeadFiles(kind=kind, format="speculators", config=config, tensors=tensors, aux=aux)


@dataclass
class Text:
    """A text with the hidden states of the target: at the inputs of layers [n, E], and ``final`` after the norm."""

    tokens: list[int]
    hidden: list[torch.Tensor]
    final: torch.Tensor

    def features(self, aux: tuple[int, ...]) -> torch.Tensor:
        return torch.cat([self.hidden[layer] for layer in aux], dim=-1) if aux else self.final


def make_text(length: int, seed: int) -> Text:
    source = torch.Generator().manual_seed(seed)
    states = [torch.randn(length, WIDE, generator=source, dtype=torch.float64) for _ in range(TARGET_LAYERS + 2)]
    tokens = torch.randint(VOCAB, (length,), generator=source).tolist()
    return Text(tokens=tokens, hidden=states[:-1], final=states[-1])


class PlainHead:
    """The slow twin. ``mutation`` breaks it in one way, to show that the comparison would notice."""

    def __init__(self, files: HeadFiles, target: TargetModel, mutation: str = "") -> None:
        self.t = files.tensors
        self.kind = files.format if files.format != "speculators" else "eagle3"
        self.config = files.config
        self.layer_config = files.config.get("transformer_layer_config", files.config)
        self.aux = files.aux
        self.target = target
        self.mutation = mutation
        if self.kind == "mtp" and not any(name.startswith("mtp.") for name in self.t):
            prefix = f"model.layers.{TARGET_LAYERS}."
            names = {"enorm": "pre_fc_norm_embedding", "hnorm": "pre_fc_norm_hidden", "eh_proj": "fc"}
            names |= {"shared_head.norm": "norm", "shared_head.head": "lm_head", "embed_tokens": "embed_tokens"}
            plain = {}
            for name, value in self.t.items():
                if name.startswith(prefix):
                    stem, _, last = name.removeprefix(prefix).rpartition(".")
                    plain[f"{names.get(stem, 'layers.0.' + stem)}.{last}"] = value
            self.t = plain
        else:
            self.t = {name.removeprefix("mtp.").replace("midlayer", "layers.0"): v for name, v in self.t.items()}

    def chain(self, text: Text, guesses: list[int]) -> torch.Tensor:
        """Logits after each token t_1 .. t_n of the text, then after each guess of one path below it."""
        features = text.features(self.aux if self.mutation != "aux layers" else self.aux[::-1])
        known = features[1:] if self.mutation == "shifted features" else features[:-1]
        inputs = self.fuse(known)
        tokens = text.tokens[1:]
        outputs = self.layers(tokens, inputs, committed=len(tokens))
        for depth in range(len(guesses)):
            inputs = torch.cat((inputs, outputs[-1:]))
            outputs = self.layers(tokens + guesses[: depth + 1], inputs, committed=len(tokens))
        return self.logits(outputs)

    def norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        if self.mutation == f"no {name.rsplit('.', 1)[-1]}" or self.mutation == f"no {name}":
            return x
        weight = self.t[name + ".weight"]
        return torch.stack([row / math.sqrt(sum(v * v for v in row.tolist()) / len(row) + EPS) * weight for row in x])

    def linear(self, name: str, x: torch.Tensor) -> torch.Tensor:
        out = x @ self.t[name + ".weight"].T
        return out + self.t[name + ".bias"] if name + ".bias" in self.t else out

    def fuse(self, features: torch.Tensor) -> torch.Tensor:
        if self.kind != "eagle3":
            return features
        if "input_norm.weight" in self.t:
            features = self.norm("input_norm", features)
        if "fc_norm.0.weight" in self.t:
            parts = features.split(WIDE, dim=-1)
            features = torch.cat([self.norm(f"fc_norm.{i}", part) for i, part in enumerate(parts)], dim=-1)
        return self.linear("fc", features)

    def layers(self, tokens: list[int], states: torch.Tensor, *, committed: int) -> torch.Tensor:
        ids = torch.tensor(tokens)
        embedded = self.t["embed_tokens.weight"][ids] if "embed_tokens.weight" in self.t else self.target.embed(ids)
        positions = [float(index) for index in range(len(tokens))]
        if self.mutation == "wrong positions":  # of guesses, relative to the text: rotation is blind to a common shift
            positions = [p + (index >= committed) for index, p in enumerate(positions)]
        x, first_read, first_residual = states, states, states
        if self.kind == "eagle":
            x = self.linear("fc", torch.cat((embedded, states), dim=-1))
            first_read = first_residual = x
            if self.mutation == "an input norm too many":
                first_read = x / x.pow(2).mean(-1, keepdim=True).sqrt()
        elif self.kind == "eagle3":
            normed = self.norm("layers.0.hidden_norm", states)
            first_read = torch.cat((self.norm("layers.0.input_layernorm", embedded), normed), dim=-1)
            before = self.config.get("norm_before_residual", False) != (self.mutation == "other residual")
            first_residual = normed if before else states
        else:
            normed = self.norm("pre_fc_norm_hidden", states)
            x = self.linear("fc", torch.cat((self.norm("pre_fc_norm_embedding", embedded), normed), dim=-1))
            first_residual, first_read = x, self.norm("layers.0.input_layernorm", x)
        for index in range(self.layer_config["num_hidden_layers"] if self.kind != "mtp" else 1):
            read = first_read if index == 0 else self.norm(f"layers.{index}.input_layernorm", x)
            x = self.layer(f"layers.{index}.", first_residual if index == 0 else x, read, positions)
        return self.norm("norm", x) if self.kind == "mtp" or self.config.get("norm_output") else x

    def layer(self, prefix: str, residual: torch.Tensor, read: torch.Tensor, positions: list[float]) -> torch.Tensor:
        config, count = self.layer_config, len(positions)
        size, heads = config["head_dim"], config["num_attention_heads"]
        q, k, v = (self.linear(f"{prefix}self_attn.{n}_proj", read).view(count, -1, size) for n in "qkv")
        if prefix + "self_attn.q_norm.weight" in self.t:
            q = torch.stack([self.norm(prefix + "self_attn.q_norm", row) for row in q])
            k = torch.stack([self.norm(prefix + "self_attn.k_norm", row) for row in k])
        q, k = self.rotated(q, positions), self.rotated(k, positions)
        rows = []
        for query in range(count):
            outputs = []
            for head in range(heads):
                group = head // (heads // config["num_key_value_heads"])
                scores = torch.stack([q[query, head] @ k[key, group] for key in range(query + 1)]) / math.sqrt(size)
                outputs.append(torch.softmax(scores, dim=0) @ v[: query + 1, group])
            rows.append(torch.cat(outputs))
        x = residual + self.linear(prefix + "self_attn.o_proj", torch.stack(rows))
        inner = self.norm(prefix + "post_attention_layernorm", x)
        gate = self.linear(prefix + "mlp.gate_proj", inner)
        gated = gate / (1 + torch.exp(-gate)) * self.linear(prefix + "mlp.up_proj", inner)
        return x + self.linear(prefix + "mlp.down_proj", gated)

    def rotated(self, x: torch.Tensor, positions: list[float]) -> torch.Tensor:
        """Dimension i and i + D/2 as one complex number, turned by position * theta^(-2i/D)."""
        half = x.shape[-1] // 2
        angles = torch.tensor([[p * THETA ** (-i / half) for i in range(half)] for p in positions], dtype=torch.float64)
        turned = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angles), angles)[:, None]
        return torch.cat((turned.real, turned.imag), dim=-1)

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        if self.kind == "eagle3":
            normed = states if self.config.get("norm_output") else self.norm("norm", states)
            return self.linear("lm_head", normed)
        if "lm_head.weight" in self.t:
            return self.linear("lm_head", states)
        return self.target.logits(states)


@pytest.fixture(scope="session")
def files() -> Callable[..., HeadFiles]:
    return make_files


@pytest.fixture(scope="session")
def plain() -> type[PlainHead]:
    return PlainHead


@pytest.fixture(scope="session")
def text_of() -> Callable[[int, int], Text]:
    return make_text


@pytest.fixture(scope="session", params=KINDS)
def head_files(request: pytest.FixtureRequest) -> HeadFiles:
    return make_files(request.param)


@pytest.fixture(scope="session")
def sizes() -> SimpleNamespace:
    return SimpleNamespace(vocab=VOCAB, draft_vocab=DRAFT_VOCAB, wide=WIDE, layers=TARGET_LAYERS)
