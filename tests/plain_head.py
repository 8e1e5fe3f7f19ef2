"""A plain twin of every draft head: no cache, no batch, no tree.

It is written from the public descriptions of the formats, on the tensors of the file, and shares no code with the
product. For each guess it computes the whole chain of pairs again, under a causal mask.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from drafters.heads.target import TargetModel
from tests.head_files import EPS, TARGET_LAYERS, THETA, VOCAB, WIDE, HeadFiles


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
        return self.linear("fc", features) if "fc.weight" in self.t else features

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
            return self.linear("lm_head" if "lm_head.weight" in self.t else "embed_tokens", normed)
        if "lm_head.weight" in self.t:
            return self.linear("lm_head", states)
        return self.target.logits(states)
