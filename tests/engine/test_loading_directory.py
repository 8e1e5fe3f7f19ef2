from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from decoding.errors import ModelLoadError
from engine.loading.directory import read_directory


@pytest.fixture
def directory(tmp_path: Path, tiny_model_dir: Callable[..., Path]) -> Path:
    return Path(shutil.copytree(tiny_model_dir(), tmp_path / "model"))


def edit(path: Path, **changes: Any) -> None:
    """Set keys of a JSON file; None removes."""
    content = {**(json.loads(path.read_text()) if path.exists() else {}), **changes}
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def test_everything_that_a_model_says(directory):
    files = read_directory(directory, "name")
    assert files.name == "name"
    assert files.directory == directory
    assert files.tokenizer == directory / "tokenizer.json"
    assert "<|im_start|>assistant" in files.chat_template
    assert files.bos_token_id is None
    assert files.gguf is None


def test_ends_are_those_of_all_files(directory):
    edit(directory / "generation_config.json", eos_token_id=[7, 0])
    edit(directory / "config.json", eos_token_id=9, text_config={"eos_token_id": [11]})
    edit(directory / "tokenizer_config.json", eos_token={"content": "<|im_end|>"})
    assert read_directory(directory, "m").eos_token_ids == (0, 2, 7, 9, 11)


def test_a_model_without_ends(directory):
    (directory / "generation_config.json").unlink()
    (directory / "tokenizer_config.json").unlink()
    edit(directory / "config.json", eos_token_id=None)
    files = read_directory(directory, "m")
    assert files.eos_token_ids == ()
    assert files.chat_template is None


def test_an_unknown_end_is_no_id(directory):
    edit(directory / "tokenizer_config.json", eos_token="<|nowhere|>")
    assert read_directory(directory, "m").eos_token_ids == (0, 2)


def test_the_tokenizer_may_put_a_token_first(directory):
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    tokenizer.post_processor = TemplateProcessing(single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)])
    tokenizer.save(str(directory / "tokenizer.json"))
    assert read_directory(directory, "m").bos_token_id == 0


@pytest.mark.parametrize(("asked", "expected"), [(True, 1), (False, None)])
def test_the_configuration_may_ask_for_a_first_token(directory, asked, expected):
    edit(directory / "tokenizer_config.json", add_bos_token=asked)
    assert read_directory(directory, "m").bos_token_id == expected


def test_template_of_its_own_file_comes_first(directory):
    (directory / "chat_template.jinja").write_text("from the file")
    assert read_directory(directory, "m").chat_template == "from the file"


@pytest.mark.parametrize(("name", "expected"), [("default", "second"), ("tool_use", None)])
def test_named_templates(directory, name, expected):
    templates = [{"name": "rag", "template": "first"}, {"name": name, "template": "second"}]
    edit(directory / "tokenizer_config.json", chat_template=templates)
    assert read_directory(directory, "m").chat_template == expected


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_a_missing_file_is_named(directory, name):
    (directory / name).unlink()
    with pytest.raises(ModelLoadError, match=f"{directory / name} does not exist"):
        read_directory(directory, "m")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", '{"model_type": "lla'),
        ("config.json", "[]"),
        ("generation_config.json", "\x00"),
        ("tokenizer_config.json", '"text"'),
        ("tokenizer.json", '{"version": "1.0"}'),
        ("tokenizer.json", "half"),
    ],
)
def test_a_broken_file_is_named(directory, name, content):
    (directory / name).write_text(content)
    with pytest.raises(ModelLoadError, match=rf"{directory / name} .*fetch it again"):
        read_directory(directory, "m")
