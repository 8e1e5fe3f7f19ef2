from __future__ import annotations

import dataclasses
import json

import pytest

from service.cli import models
from service.client import Limits, Model
from service.v1 import model_pb2


@pytest.fixture
def served(server):
    limits = {name: number * 1000 for number, name in enumerate(model_pb2.Limits.DESCRIPTOR.fields_by_name, 1)}
    scalars = {"name": "tiny", "architecture": "llama", "parameters": 134_515_008, "dtype": "float32", "device": "cpu"}
    scalars |= {"vocab_size": 49_152, "has_chat_template": True, "server_version": "0.1.0"}
    scalars |= {"draft_tokens": 8, "tree_width": 2, "verifier": "walk"}
    lists = {"eos_token_ids": (0, 2), "drafters": ("forced", "ngram")}
    message = model_pb2.Model(**scalars, **lists, limits=model_pb2.Limits(**limits))
    server.play("ListModels", model_pb2.ListModelsResponse(models=[message]))
    return Model(**scalars, **lists, limits=Limits(**limits))


def test_json_has_every_field(server, served, capsys):
    assert models.main(["--json", "--address", server.address]) == 0
    (document,) = json.loads(capsys.readouterr().out)
    assert document == json.loads(json.dumps(dataclasses.asdict(served)))


def test_the_table_has_every_field(server, served, capsys):
    assert models.main(["--address", server.address]) == 0
    rows = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    names = {field.name for kind in (Model, Limits) for field in dataclasses.fields(kind)}
    assert set(rows) == names - {"limits"}
    assert rows["parameters"] == "134,515,008"
    assert rows["eos_token_ids"] == "0, 2"
    assert rows["has_chat_template"] == "yes"
    assert rows["dtype"] == "float32"


def test_no_server_exits_1(capsys):
    assert models.main(["--address", "127.0.0.1:1"]) == 1
    assert "espalier serve" in capsys.readouterr().err
