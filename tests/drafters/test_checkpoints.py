"""Files under public names: read, written and read again, and refused by name where they do not fit."""

from __future__ import annotations

import json
import logging
import pickle
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models

from decoding.errors import ModelLoadError
from drafters.checkpoints.eagle import write_eagle
from drafters.checkpoints.eagle3_writing import write_eagle3, write_speculators
from drafters.checkpoints.load import detect_format, load_head
from drafters.checkpoints.mtp import write_mtp


def write_again(directory, head_files, head, target):
    match head_files.kind:
        case "eagle" | "eagle-bare":
            write_eagle(directory, head, target)
        case "speculators":
            write_speculators(directory, head, target, speculative_tokens=3)
        case "mtp-qwen":
            write_mtp(directory, head, target)
        case "mtp-deepseek":
            write_mtp(directory, head, target, naming="deepseek")
        case _:
            write_eagle3(directory, head, target)


def test_what_is_written_has_the_public_names_and_reads_back(head_files, target, tmp_path):
    directory = head_files.write(tmp_path / "published")
    assert detect_format(directory) == head_files.format
    head = load_head(directory, target)
    write_again(tmp_path / "written", head_files, head, target)
    assert detect_format(tmp_path / "written") == head_files.format
    written = load_file(tmp_path / "written" / "model.safetensors")
    foreign = {"model.embed_tokens.weight", "model.norm.weight"}  # the target's, in the same files
    assert set(written) == set(head_files.tensors) - foreign
    assert all(torch.equal(value, head_files.tensors[name]) for name, value in written.items())
    again = load_head(tmp_path / "written", target)
    assert again.features == head.features
    assert again.shape.rope.settings == head.shape.rope.settings
    assert again.state_dict().keys() == head.state_dict().keys()
    if head_files.format in ("eagle3", "speculators"):
        assert again.options == head.options


def test_speculators_and_eagle3_layouts_hold_the_same_head(files, target, tmp_path):
    head = load_head(files("eagle3").write(tmp_path / "a"), target)
    write_speculators(tmp_path / "b", head, target, speculative_tokens=5)
    other = load_head(tmp_path / "b", target)
    assert other.options == head.options
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in head.state_dict().items())


def test_torch_files_and_shards_are_read(files, target, tmp_path):
    published = files("eagle")
    whole = load_head(published.write(tmp_path / "bin", file="pytorch_model.bin"), target)
    old = tmp_path / "old"
    published.write(old, file="pytorch_model.bin")
    torch.save(published.tensors, old / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    parts = tmp_path / "parts"
    published.write(parts)
    (parts / "model.safetensors").unlink()
    names = sorted(published.tensors)
    for shard, chosen in (("one.safetensors", names[:4]), ("two.safetensors", names[4:])):
        save_file({name: published.tensors[name] for name in chosen}, parts / shard)
    index = {"weight_map": {name: "one.safetensors" if name in names[:4] else "two.safetensors" for name in names}}
    (parts / "model.safetensors.index.json").write_text(json.dumps(index))
    for directory in (old, parts):
        other = load_head(directory, target)
        assert all(torch.equal(value, other.state_dict()[name]) for name, value in whole.state_dict().items())
    (parts / "two.safetensors").unlink()
    with pytest.raises(ModelLoadError, match=r"names two\.safetensors, which does not exist; fetch it again"):
        load_head(parts, target)


BAD = [
    ("eagle", lambda f: f.tensors.pop("fc.bias"), r"'fc\.bias' is missing.*config\.json belongs"),
    ("eagle", lambda f: f.config.update(bias=False), r"does not use: fc\.bias"),
    ("eagle", lambda f: f.config.update(hidden_size=64), r"hidden_size is 64, but .* tiny-target is 48; use a head"),
    ("eagle", lambda f: f.config.update(vocab_size=71), r"vocab_size is 71, but tiny-target has a vocabulary of 70"),
    ("eagle", lambda f: f.config.pop("intermediate_size"), r"'intermediate_size' is missing and must be a whole"),
    ("eagle", lambda f: f.config.update(num_attention_heads="4"), r"'num_attention_heads' is '4' and must be"),
    ("eagle", lambda f: f.config.update(num_key_value_heads=3), r"4 is not a multiple of num_key_value_heads 3"),
    ("eagle", lambda f: f.config.update(hidden_act="swoosh"), r"'swoosh' is no activation"),
    (
        "eagle",
        lambda f: f.config.update(rope_scaling={"rope_type": "dynamic", "factor": 2.0}),
        r"'dynamic' of the head",
    ),
    ("eagle", lambda f: f.config.update(rope_scaling={"rope_type": "spiral"}), r"rope settings .* cannot be read"),
    ("eagle", lambda f: f.tensors.update({"fc.weight": torch.ones(48, 95)}), r"'fc\.weight' has shape \(48, 95\), but"),
    ("eagle", lambda f: f.tensors.update({"fc.bias": torch.ones(48, dtype=torch.int8)}), r"int8; use .* unquantised"),
    (
        "eagle3",
        lambda f: f.tensors.pop("midlayer.hidden_norm.weight"),
        r"'midlayer\.hidden_norm\.weight' or 'layers\.0",
    ),
    ("eagle3", lambda f: f.tensors.pop("norm.weight"), r"'norm\.weight' is missing"),
    ("eagle3", lambda f: f.tensors.pop("d2t"), r"'d2t' is missing"),
    ("eagle3", lambda f: f.tensors.pop("embed_tokens.weight"), r"no embed_tokens\.weight\) is 32, but .* 48"),
    ("eagle3", lambda f: f.config.update(target_hidden_size=96), r"target_hidden_size is 96, but .* 48"),
    ("eagle3", lambda f: f.config.update(draft_vocab_size=42), r"'d2t' has shape \(41,\), .* ask for \(42,\)"),
    ("eagle3", lambda f: f.config.update(draft_vocab_size=71), r"draft_vocab_size 71 is larger .* 70"),
    ("eagle3", lambda f: f.config.update(vocab_size=128), r"vocab_size is 128"),
    ("eagle3", lambda f: f.tensors.update(d2t=f.tensors["d2t"] + 100), r"'d2t' leads to token id 1\d\d"),
    ("eagle3", lambda f: f.tensors.update(d2t=-torch.arange(41)), r"same token id twice; it must hold offsets"),
    ("eagle3", lambda f: f.tensors.update(t2d=~f.tensors["t2d"]), r"'d2t' and 't2d' name different tokens"),
    (
        "eagle3",
        lambda f: f.config.update(eagle_config={"eagle_aux_hidden_state_layer_ids": [1, 6, 3]}),
        r"names layer 6,",
    ),
    (
        "eagle3",
        lambda f: f.config.update(eagle_config={"eagle_aux_hidden_state_layer_ids": [1, 3]}),
        r"\(32, 144\), .* \(3",
    ),
    ("eagle3", lambda f: f.config.update(eagle_config={"eagle_aux_hidden_state_layer_ids": "1"}), r"a list of layer"),
    ("eagle3", lambda f: f.config.update(use_aux_hidden_state=False), r"use_aux_hidden_state is false\) is 32"),
    (
        "eagle3",
        lambda f: (f.config.update(tie_word_embeddings=True), f.tensors.pop("lm_head.weight")),
        r"tie_word_embedd",
    ),
    ("eagle3", lambda f: f.config.update(norm_before_fc="yes"), r"'norm_before_fc' is 'yes' and must be true or false"),
    ("speculators", lambda f: f.config.update(speculators_model_type="dflash"), r"'dflash' is not supported, only"),
    ("speculators", lambda f: f.config.update(transformer_layer_config=3), r"'transformer_layer_config' is 3"),
    ("mtp-qwen", lambda f: f.config.update(num_experts=64), r"a mixture of experts are not supported"),
    ("mtp-qwen", lambda f: f.config.update(model_type="qwen3_next"), r"zero-centred norms .* not supported"),
    ("mtp-qwen", lambda f: f.tensors.pop("mtp.norm.weight"), r"'mtp\.norm\.weight' is missing"),
    ("mtp-deepseek", lambda f: f.config.update(kv_lora_rank=512), r"multi-head latent attention \(MLA\) are not"),
    ("mtp-deepseek", lambda f: f.tensors.pop("model.layers.6.hnorm.weight"), r"'model\.layers\.6\.hnorm\.weight' is"),
    ("mtp-deepseek", lambda f: f.config.update(hidden_size=96), r"hidden_size is 96, but"),
]


@pytest.mark.parametrize(("kind", "change", "message"), BAD)
def test_what_does_not_fit_is_an_error_that_names_it(kind, change, message, files, target, tmp_path):
    bad = files(kind)
    change(bad)
    with pytest.raises(ModelLoadError, match=message):
        load_head(bad.write(tmp_path), target)


@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize("left", [0, 100, 0.5, 0.99])
def test_truncated_files_are_named(file, left, files, target, tmp_path):
    path = files("eagle3").write(tmp_path, file=file) / file
    content = path.read_bytes()
    path.write_bytes(content[: int(left * len(content)) if left < 1 else left])
    with pytest.raises(ModelLoadError, match=rf"{file} is truncated.*fetch it again"):
        load_head(tmp_path, target)


def test_pickled_code_is_refused_and_not_run(files, target, tmp_path):
    class Bomb:
        def __reduce__(self):
            return (tmp_path.joinpath("it ran").touch, ())

    files("eagle").write(tmp_path, file="pytorch_model.bin")
    torch.save({"fc.weight": Bomb()}, tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelLoadError, match=r"more than tensors, which is never run; .* as safetensors"):
        load_head(tmp_path, target)
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps([1, 2], protocol=2))
    with pytest.raises(ModelLoadError, match=r"fetch it again|state dict"):
        load_head(tmp_path, target)
    torch.save([torch.ones(2)], tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelLoadError, match="must hold a state dict"):
        load_head(tmp_path, target)
    assert not (tmp_path / "it ran").exists()


def test_directories_without_a_head_are_named(files, target, tmp_path):
    with pytest.raises(ModelLoadError, match="is no directory"):
        load_head(tmp_path / "nowhere", target)
    with pytest.raises(ModelLoadError, match="holds no weights of a head"):
        load_head(tmp_path, target)
    save_file({"model.norm.weight": torch.ones(3)}, tmp_path / "model.safetensors")
    with pytest.raises(ModelLoadError, match=r"no head that Espalier knows .*model\.norm\.weight; name"):
        load_head(tmp_path, target)
    save_file(files("eagle").tensors, tmp_path / "model.safetensors")
    with pytest.raises(ModelLoadError, match=r"config\.json does not exist; a head needs"):
        load_head(tmp_path, target)
    for text in ("{", "[]"):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ModelLoadError, match=r"config\.json (is no JSON|must hold a JSON object)"):
            load_head(tmp_path, target)


def tokenizer(path, words):
    Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="a")).save(str(path))
    return path


def test_another_tokenizer_is_named_by_its_first_token(files, target, tmp_path):
    target = replace(target, tokenizer=tokenizer(tmp_path / "target.json", ["a", "b", "c", "d"]))
    directory = files("eagle3").write(tmp_path / "head")
    tokenizer(directory / "tokenizer.json", ["a", "b", "c", "d"])
    load_head(directory, target)
    tokenizer(directory / "tokenizer.json", ["a", "c", "b", "d"])
    with pytest.raises(ModelLoadError, match=r"another tokenizer .* 2 tokens, first in 'c' \(id 1 against 2\)"):
        load_head(directory, target)
    (directory / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelLoadError, match=r"tokenizer\.json cannot be read"):
        load_head(directory, target)


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_unknown_auxiliary_layers_are_guessed_loudly(files, target, tmp_path, caplog):
    unsure = files("eagle3")
    del unsure.config["eagle_config"]
    with caplog.at_level(logging.WARNING):
        head = load_head(unsure.write(tmp_path), replace(target, num_layers=16))
    assert head.features.layer_inputs == (2, 8, 13)
    (warning,) = warnings(caplog)
    assert "DOES NOT SAY WHICH LAYERS" in warning
    assert "(2, 8, 13)" in warning
    assert "eagle_aux_hidden_state_layer_ids" in warning
    with pytest.raises(ModelLoadError, match=r"is missing, and the usual choice is layer 2, but .* 1 layers; set"):
        load_head(tmp_path, replace(target, num_layers=1))


def test_known_auxiliary_layers_and_the_right_name_warn_of_nothing(files, target, tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        load_head(files("eagle3").write(tmp_path / "a"), target)
        load_head(files("speculators").write(tmp_path / "b"), target)
    assert warnings(caplog) == []


def test_open_options_of_speculators_and_other_targets_are_reported(files, target, tmp_path, caplog):
    unsure = files("speculators")
    del unsure.config["norm_before_residual"]
    with caplog.at_level(logging.WARNING):
        head = load_head(unsure.write(tmp_path), replace(target, name="other-model"))
    assert not head.options.norm_before_residual
    residual, name = warnings(caplog)
    assert "norm_before_residual" in residual
    assert "0.3.0" in residual
    assert "'somebody/tiny-target'" in name
    assert "'other-model'" in name


def test_of_several_mtp_layers_the_first_drafts(files, target, tmp_path, caplog):
    several = files("mtp-qwen")
    several.tensors |= {
        name.replace("layers.0", "layers.1"): torch.zeros_like(value)
        for name, value in several.tensors.items()
        if "layers.0" in name
    }
    with caplog.at_level(logging.WARNING):
        head = load_head(several.write(tmp_path), target)
    assert "2 MTP layers; the first one drafts" in warnings(caplog)[0]
    first = several.tensors["mtp.layers.0.mlp.up_proj.weight"]
    assert torch.equal(head.state_dict()["layers.0.mlp.up_proj.weight"], first)


def test_weights_take_the_dtype_of_the_target(files, target, tmp_path):
    head = load_head(files("eagle3").write(tmp_path), replace(target, dtype=torch.bfloat16))
    assert {value.dtype for value in head.state_dict().values()} == {torch.bfloat16}
    assert not any(parameter.requires_grad for parameter in head.parameters())
    assert head.target_ids.dtype == torch.int64
