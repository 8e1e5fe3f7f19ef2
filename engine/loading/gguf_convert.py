"""Converts a GGUF file to a Hugging Face style directory in float32, once, so that everything else reads one format.

float32 holds the dequantised values without rounding. Invariant: every tensor equals ``gguf.dequantize``, with the rows
of Llama's queries and keys back in transformers' order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGUFReader, dequantize
from safetensors.numpy import save_file

from decoding.errors import ModelLoadError
from engine.loading.gguf_config import config_from_gguf, generation_config_from_gguf
from engine.loading.gguf_tokenizer import write_tokenizer
from engine.loading.progress import ProgressReporter

_SHARD_BYTES = 1 << 30

_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def convert_gguf(gguf: Path, directory: Path, progress: ProgressReporter) -> None:
    """Write config, weights and tokenizer of ``gguf`` into ``directory``; raises ModelLoadError where it cannot."""
    with progress.task(f"Converting {gguf.name}") as update:
        update(0, None)
        try:
            reader = GGUFReader(gguf)
        except (OSError, ValueError, IndexError, KeyError) as error:
            raise ModelLoadError(f"{gguf} is no readable GGUF file ({error}); fetch it again") from error
        metadata = {name: field.contents() for name, field in reader.fields.items()}
        config = config_from_gguf(metadata, {tensor.name for tensor in reader.tensors})
        _write_json(directory / "config.json", config)
        _write_json(directory / "generation_config.json", generation_config_from_gguf(metadata))
        write_tokenizer(gguf, metadata, directory)
        _write_weights(directory, _tensors(reader, config), lambda done: update(done, len(reader.tensors)))


def _write_weights(
    directory: Path, tensors: Iterable[tuple[str, npt.NDArray[np.float32]]], report: Callable[[int], None]
) -> None:
    """Write shards and their index, holding at most one shard in memory."""
    index: dict[str, str] = {}
    shard: dict[str, npt.NDArray[np.float32]] = {}
    for done, (name, values) in enumerate(tensors, start=1):
        shard[name] = values
        if sum(array.nbytes for array in shard.values()) >= _SHARD_BYTES:
            index |= _write_shard(directory, shard)
            shard = {}
        report(done)
    index |= _write_shard(directory, shard)
    _write_json(directory / "model.safetensors.index.json", {"metadata": {}, "weight_map": index})


def _tensors(reader: GGUFReader, config: dict[str, Any]) -> Iterator[tuple[str, npt.NDArray[np.float32]]]:
    for tensor in reader.tensors:
        values = np.ascontiguousarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        # llama.cpp interleaves the halves that rope rotates with each other, in this architecture alone.
        if reader.fields["general.architecture"].contents() == "llama":
            if ".attn_q." in tensor.name:
                values = _deinterleave(values, config["num_attention_heads"])
            elif ".attn_k." in tensor.name:
                values = _deinterleave(values, config["num_key_value_heads"])
        yield _transformers_name(tensor.name), values


def _deinterleave(rows: npt.NDArray[np.float32], heads: int) -> npt.NDArray[np.float32]:
    """Within each head, rows 0 2 4 ... then 1 3 5 ..."""
    return np.ascontiguousarray(rows.reshape(heads, -1, 2, *rows.shape[1:]).swapaxes(1, 2)).reshape(rows.shape)


def _transformers_name(name: str) -> str:
    stem, _, kind = name.rpartition(".")
    if stem in _TOP:
        return f"{_TOP[stem]}.{kind}"
    prefix, _, rest = stem.partition(".")
    block, _, part = rest.partition(".")
    if prefix == "blk" and part in _BLOCK:
        return f"model.layers.{block}.{_BLOCK[part]}.{kind}"
    raise ModelLoadError(
        f"the GGUF file holds a tensor {name!r} that is unknown; use the model's original Hugging Face directory"
    )


def _write_shard(directory: Path, shard: dict[str, npt.NDArray[np.float32]]) -> dict[str, str]:
    name = f"model-{len(list(directory.glob('model-*.safetensors'))):05}.safetensors"
    save_file(shard, directory / name, metadata={"format": "pt"})
    return dict.fromkeys(shard, name)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")
